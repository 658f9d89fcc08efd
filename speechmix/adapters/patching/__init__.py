"""Forward passes with changed values: interventions inside an unmodified model."""
