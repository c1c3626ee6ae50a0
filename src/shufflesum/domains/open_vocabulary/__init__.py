"""Everything about the domain `OpenVocabulary`."""

from shufflesum.domains.open_vocabulary.domain import OpenVocabulary

__all__ = ["OpenVocabulary"]
