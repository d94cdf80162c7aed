"""What is wrong with an input: a code from a closed set, and words without anything out of the file."""

from __future__ import annotations

from airflow_provider_llmbatch.errors import ConfigurationError, InputError

#: Every code and what it says. Names, texts and paths of inputs never stand beside it.
CODES = {
    "ct.not_found": "there is no such file or folder",
    "ct.not_dicom": "no file of the folder is DICOM",
    "ct.unreadable": "a DICOM file is broken",
    "ct.modality": "these are images of another kind than CT",
    "ct.photometric": "an image is stored inverted or in colour, which no CT is",
    "ct.no_series": "there is no series besides localizers",
    "ct.unknown_series": "the series that the record names is not there",
    "ct.ambiguous_series": "several series are equally good; name one",
    "ct.no_geometry": "position, orientation or pixel spacing is missing",
    "ct.no_rescale": "slope or intercept is missing, so there are no Hounsfield units",
    "ct.mixed_size": "slices of one series differ in size",
    "ct.mixed_orientation": "slices of one series differ in orientation",
    "ct.mixed_spacing": "slices of one series differ in pixel spacing",
    "ct.too_few_slices": "one slice is no volume",
    "ct.duplicate": "two slices lie at the same place",
    "ct.gap": "slices are missing",
    "ct.irregular": "the distance between slices changes",
    "ct.tilt": "the slices are sheared against each other (gantry tilt)",
    "ct.no_decoder": "the compression needs a decoder that is not installed",
    "ct.truncated": "pixel data are cut short or cannot be decoded",
    "wsi.not_found": "there is no such file",
    "wsi.unreadable": "the slide cannot be opened or a region cannot be read",
    "wsi.no_mpp": "the slide does not say how large a pixel is",
    "wsi.too_coarse": "the slide is scanned more coarsely than the target",
    "wsi.no_tissue": "no part of the slide looks like tissue",
    "note.not_found": "there is no such file",
    "note.encoding": "the text is not UTF-8",
    "note.control": "the text holds control characters",
    "note.empty": "the text is empty",
    "note.too_long": "the text is longer than the largest note",
    "facts.invalid": "the facts are no JSON object",
    "facts.empty": "the facts say nothing",
    "deid.person": "a header names a person and does not say that identity was removed",
    "deid.burned_in": "a header says that text is burned into the picture, or the image is a capture",
    "deid.slide_label": "the slide file carries a picture of its label or of the whole glass",
    "deid.note": "the note holds an e-mail address, a telephone or an identity number",
    "rec.bad_row": "the row of the source is no record",
    "rec.unknown_field": "the row has a field that the schema does not know",
    "rec.empty": "no modality of the record can be used",
    "rec.required": "a modality that is required cannot be used",
    "rec.too_few": "fewer modalities can be used than min_modalities",
    "rec.non_finite": "the model gives no finite numbers for the record",
}


class FusionInputError(InputError):
    """
    An input of a record cannot be used.

    :param code: one of :data:`CODES`.
    :param modality: the name of the modality; ``""`` for the whole record.
    :param detail: numbers, positions, identifiers of a standard; nothing that tells who a patient is.
    """

    def __init__(self, code: str, modality: str = "", detail: str = "") -> None:
        self.code, self.modality, self.detail = code, modality, detail
        super().__init__(f"{code}: {CODES[code]}{f' ({detail})' if detail else ''}")


def missing_library(name: str, extra: str) -> ConfigurationError:
    """Return the error for a library that an extra of this package brings."""
    return ConfigurationError(
        f"Fusion needs {name}, which is not installed where the task runs: "
        f"install airflow-provider-llmbatch[{extra}]."
    )
