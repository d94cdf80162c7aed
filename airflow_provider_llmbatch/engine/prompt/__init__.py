"""Versioned prompt files, and their strict, sandboxed rendering."""

from __future__ import annotations

from airflow_provider_llmbatch.engine.prompt.load import Prompt, inline_prompt, load_prompt, versions_of
from airflow_provider_llmbatch.engine.prompt.render import render, required_variables

__all__ = ["Prompt", "inline_prompt", "load_prompt", "render", "required_variables", "versions_of"]
