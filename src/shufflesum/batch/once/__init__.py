"""Never twice: what a shuffler has released, and what an analyzer has counted."""
