"""Commands of Airflow's command line: ``airflow llmbatch …``."""
