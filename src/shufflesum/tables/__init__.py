"""Reading users' data from files in batches, and writing estimates whole or not at all."""
