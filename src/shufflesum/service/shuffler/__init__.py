"""The shuffler as a server: takes uploads that it cannot read, and hands whole batches, permuted, to the analyzer."""
