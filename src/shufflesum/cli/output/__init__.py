"""What commands print, write and draw."""
