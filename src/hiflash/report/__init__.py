"""What a person sees of a run: figures, tables and the live view; import the module you need."""
