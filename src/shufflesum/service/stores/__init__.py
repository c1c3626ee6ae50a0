"""What the two servers keep, in SQLite or PostgreSQL: sealed reports the shuffler, tables of counts the analyzer."""
