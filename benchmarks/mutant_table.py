# ruff: noqa: E501 - what stands in a file is written as one text, however long
"""The mutants of `benchmarks.mutants`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """A change for the worse.

    old: what stands in the file exactly once, with as much around the line as it takes to be the only one. new: what
    takes its place. tests: those that have to fail then, as pytest names them. equivalent: why no test can.
    """

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""

    @property
    def shown(self) -> str:
        """The lines that differ, as a table has them."""
        olds, news = self.old.strip("\n").split("\n"), self.new.strip("\n").split("\n")
        gone = [line.strip() for line in olds if line not in news]
        come = [line.strip() for line in news if line not in olds]
        return f"{' / '.join(gone) or '(order)'} -> {' / '.join(come) or '(removed)'}"

    def applied(self, text: str) -> str:
        """The file's text with the change; raises ValueError unless `old` is found exactly once."""
        if text.count(self.old) != 1 or self.new == self.old:
            raise ValueError(f"{self.file} holds {text.count(self.old)} times, expected once: {self.old!r}")
        return text.replace(self.old, self.new)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "storage/folder.py",
        "        except FileExistsError:\n            made = False\n",
        "        except FileExistsError:\n            made = True\n",
        ("tests/storage/test_races.py::test_who_comes_second_between_the_look_and_the_link_has_made_nothing",),
    ),
    Mutant(
        "storage/folder.py",
        "        os.link(source, target)\n",
        "        os.replace(source, target)\n",
        ("tests/storage/test_folder.py::test_a_file_in_the_scratch_folder_is_taken_over_without_a_copy",),
    ),
    Mutant(
        "storage/folder.py",
        "                restored.replace(path)\n",
        "                restored.unlink()\n",
        ("tests/storage/test_folder.py::test_damage_is_noticed_and_putting_the_blob_again_heals_it",),
    ),
    Mutant(
        "storage/folder.py",
        '                verified_blob(self.root, digest)\n                fault_point("refresh")\n',
        '                fault_point("refresh")\n',
        ("tests/storage/test_folder.py::test_damage_is_noticed_and_putting_the_blob_again_heals_it",),
    ),
    Mutant(
        "storage/folder.py",
        "                os.utime(path)\n",
        "                pass\n",
        ("tests/storage/test_folder.py::test_a_blob_found_again_gets_a_new_time",),
    ),
    Mutant(
        "storage/folder.py",
        '                if entry.name != f"run-{keep}":\n',
        '                if entry.name == f"run-{keep}":\n',
        ("tests/storage/test_folder.py::test_the_sweep_removes_what_the_dead_left_and_spares_the_living",),
    ),
    Mutant(
        "storage/folder.py",
        "                    if old or living is False:\n",
        "                    if old:\n",
        ("tests/storage/test_folder.py::test_the_sweep_removes_what_the_dead_left_and_spares_the_living",),
    ),
    Mutant(
        "storage/folder.py",
        " and not (ours or living)\n",
        "\n",
        ("tests/storage/test_folder.py::test_a_sweep_of_everything_spares_what_a_live_process_is_writing",),
    ),
    Mutant(
        "storage/refs.py",
        "    if latest > epoch:\n",
        "    if latest > epoch + 1:\n",
        ("tests/storage/test_lease.py::test_a_stale_holder_finds_out_and_never_commits",),
    ),
    Mutant(
        "storage/refs.py",
        "    if (found.run_id, found.manifest, found.parent) == (ref.run_id, ref.manifest, ref.parent):\n",
        "    if found.manifest == ref.manifest:\n",
        ("tests/storage/test_refs.py::test_a_version_of_another_run_is_never_replaced",),
    ),
    Mutant(
        "storage/refs.py",
        "    if parent != (versions[-1] if versions else None):\n",
        "    if not versions and parent is not None:\n",
        ("tests/storage/test_refs.py::test_a_parent_that_does_not_exist_is_refused",),
    ),
    Mutant(
        "storage/refs.py",
        "        if moved.version != version:\n",
        "        if moved.version is None:\n",
        ("tests/storage/test_refs.py::test_an_alias_that_is_moved_elsewhere_at_the_same_moment_is_told",),
    ),
    Mutant(
        "storage/lease.py",
        "        return self._ended or now >= from_timestamp(self.expires) + MARGIN\n",
        "        return self._ended or now >= from_timestamp(self.expires)\n",
        ("tests/storage/test_lease.py::test_a_lease_from_another_machine_is_taken_over_only_after_it_ran_out",),
    ),
    Mutant(
        "storage/lease.py",
        "        return self.released or alive(self.holder) is False\n",
        "        return self.released\n",
        ("tests/storage/test_lease.py::test_the_lease_of_a_killed_run_is_taken_over_at_once",),
    ),
    Mutant(
        "storage/lease.py",
        "        return self.released or alive(self.holder) is False\n",
        "        return alive(self.holder) is False\n",
        ("tests/storage/test_lease.py::test_a_run_takes_the_lease_and_gives_it_back",),
    ),
    Mutant(
        "storage/lease.py",
        "                expires = max(expires, get_record(store, name, _Renewal).expires)\n",
        "                get_record(store, name, _Renewal)\n",
        ("tests/storage/test_lease.py::test_a_renewal_prolongs_the_lease_and_leaves_one_record",),
    ),
    Mutant(
        "storage/lease.py",
        "    clock = clock or clock_of(store)\n",
        "    clock = clock or __import__('time').time\n",
        ("tests/storage/test_clocks.py::test_a_live_lease_is_not_taken_over_by_a_host_whose_clock_is_wrong",),
    ),
    Mutant(
        "storage/clock.py",
        "    return lambda: _elapsed() + ahead\n",
        "    return lambda: _elapsed()\n",
        ("tests/storage/test_clocks.py::test_a_lease_says_when_it_ends_by_the_clock_of_the_store",),
    ),
    Mutant(
        "storage/deletions.py",
        "                if lease.clock() - looked > _LOOK_AGAIN:\n",
        "                if looked == -math.inf:\n",
        ("tests/storage/test_deletions.py::test_a_remover_that_was_asleep_looks_again_before_it_deletes",),
    ),
    Mutant(
        "storage/lease.py",
        "            store.sweep(now, keep=run_id)\n",
        "            pass\n",
        ("tests/storage/test_lease.py::test_taking_the_lease_sweeps_what_dead_runs_left",),
    ),
    Mutant(
        "storage/lease.py",
        "highest_epoch(self.store)) > self.epoch:\n",
        "highest_epoch(self.store)) > self.epoch + 1:\n",
        ("tests/storage/test_lease.py::test_a_stale_holder_finds_out_and_never_commits",),
    ),
    Mutant(
        "storage/prompt_records.py",
        "        if digest != digest_of(whole):\n",
        "        if len(digest) != 64:\n",
        ("tests/storage/test_ledger.py::test_no_changed_byte_goes_unnoticed",),
    ),
    Mutant(
        "storage/ledger.py",
        "            if stands(found):\n                return found\n",
        "            return found\n",
        ("tests/storage/test_ledger.py::test_a_record_that_cannot_be_used_is_replaced",),
    ),
    Mutant(
        "storage/prompt_records.py",
        "    if record.name != name:\n",
        "    if not name:\n",
        ("tests/storage/test_ledger.py::test_a_damaged_record_counts_as_none_and_is_replaced",),
    ),
    Mutant(
        "storage/ledger.py",
        "        store.delete(name)\n    return entry\n",
        "        store.delete(name)\n        return entry\n    return entry\n",
        ("tests/storage/test_ledger.py::test_a_damaged_record_counts_as_none_and_is_replaced",),
    ),
    Mutant(
        "storage/batches.py",
        '    store.create(batch_name(batch.id, "closed"), closed.to_bytes())\n    _sweep(store, batch.id)\n',
        '    _sweep(store, batch.id)\n    store.create(batch_name(batch.id, "closed"), closed.to_bytes())\n',
        ("tests/storage/test_batches.py::test_closing_may_break_off_anywhere",),
    ),
    Mutant(
        "storage/batches.py",
        "get_record(store, batch_name(batch.id, name), type(step))}\n",
        "step}\n",
        ("tests/storage/test_batches.py::test_the_first_record_of_a_step_stands",),
    ),
    Mutant(
        "storage/batches.py",
        '        if "closed" in steps and steps != {"closed"}:\n            _sweep(store, batch)\n',
        '        if steps == {"closed"}:\n            _sweep(store, batch)\n',
        ("tests/storage/test_batches.py::test_closing_may_break_off_anywhere",),
    ),
    Mutant(
        "storage/batches.py",
        'sorted(names, key=lambda name: name == batch_name(batch, "asked")):',
        "sorted(names):",
        ("tests/storage/test_batches.py::test_giving_up_that_breaks_off_leaves_a_batch_to_give_up",),
    ),
    Mutant(
        "storage/batches.py",
        "if not gone((*one.about, one.makes)))",
        "if not gone(one.about))",
        ("tests/storage/test_batches.py::test_questions_leave_a_batch",),
    ),
    Mutant(
        "storage/receipts.py",
        "size is not None and size == receipt.bytes.get(output, size) for",
        "size is not None for",
        ("tests/storage/test_receipts.py::test_a_receipt_whose_blob_was_cut_counts_as_none",),
    ),
    Mutant(
        "storage/receipts.py",
        "    return receipt if receipt is not None and has_outputs(store, receipt) else None\n",
        "    return receipt\n",
        ("tests/storage/test_receipts.py::test_a_receipt_whose_blob_was_lost_counts_as_none_and_is_replaced",),
    ),
    Mutant(
        "tasks/core/part_runner.py",
        "return receipt if receipt is not None and has_outputs(self.store, receipt) else None\n",
        "return receipt\n",
        ("tests/tasks/pipeline/test_build.py::test_a_part_of_the_parent_without_its_blobs_is_made_again",),
    ),
    Mutant(
        "tasks/core/part_runner.py",
        " if stage.requests is None else None\n        return receipt",
        "\n        return receipt",
        ("tests/flows/test_heterograph_llm.py::test_a_refused_text_has_a_stand_in_until_it_is_asked_for_again",),
    ),
    *(
        Mutant(
            "storage/runs.py",
            before,
            after,
            (f"tests/{test}",),
        )
        for before, after, test in (
            (
                'made.command not in ("build", "backfill")',
                "False",
                "tasks/pipeline/test_build.py::test_a_build_goes_on_from_a_cold_one_that_does_not_stand",
            ),
            (
                "run_of(store, epoch)) is not False for",
                "run_of(store, epoch)) is None for",
                "tasks/pipeline/test_build.py::test_a_build_goes_on_from_a_cold_one_that_does_not_stand",
            ),
            (
                " or highest < ref.epoch:",
                ":",
                "storage/test_runs.py::test_a_later_run_without_a_record_may_have_been_cold",
            ),
            (
                "for run_id in (ref.run_id, *before) if",
                "for run_id in (ref.run_id,) if",
                "storage/test_runs.py::test_workers_of_a_killed_cold_run_may_outlive_two_later_ones",
            ),
        )
    ),
    Mutant(
        "storage/receipts.py",
        "not receipt.complete and receipt.key == key and receipt.outputs == outputs:\n",
        "not receipt.complete and receipt.key == key:\n",
        ("tests/storage/test_receipts.py::test_a_published_part_with_failed_rows_is_found_by_what_it_holds",),
    ),
    Mutant(
        "storage/receipts.py",
        "        if winner is not None:\n            return winner\n    name = complete",
        "        pass\n    name = complete",
        ("tests/storage/test_receipts.py::test_an_incomplete_part_is_for_its_run_and_does_not_stand_in_the_way",),
    ),
    Mutant(
        "storage/receipts.py",
        "if receipt.row_space == row_space and receipt.key",
        "if receipt.key",
        (
            "tests/storage/test_receipts.py::test_candidates_are_the_overlapping_receipts_of_the_same_row_space_nearest_first",
        ),
    ),
    Mutant(
        "storage/receipts.py",
        "    if not (one[2].startswith(two[2]) or two[2].startswith(one[2])):\n",
        "    if not one[2].startswith(two[2]):\n",
        ("tests/storage/test_receipts.py::test_shards_overlap_when_one_prefix_begins_the_other",),
    ),
    Mutant(
        "storage/exports.py",
        "    if hashed.hexdigest() != artifact.digest:\n",
        "    if not artifact.digest:\n",
        ("tests/flows/test_export.py::test_a_blob_that_decays_after_its_check_is_found_by_what_was_copied",),
    ),
    Mutant(
        "storage/records.py",
        "        if store.create(name(number), made.to_bytes()):\n            return made\n",
        "        store.create(name(number), made.to_bytes())\n        return made\n",
        ("tests/storage/test_exports.py::test_two_that_export_at_the_same_moment_are_both_on_record",),
    ),
    Mutant(
        "storage/exports.py",
        "os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)",
        "os.O_WRONLY | os.O_CREAT, 0o666)",
        ("tests/storage/test_exports.py::test_a_file_that_is_there_is_not_written_over",),
    ),
    Mutant(
        "storage/tombstones.py",
        "for one in self.tombstones for digest in (one.document, *one.derived))\n",
        "for one in self.tombstones for digest in (one.document,))\n",
        ("tests/storage/test_tombstones.py::test_what_was_made_of_a_forgotten_document_is_named_too",),
    ),
    Mutant(
        "storage/tombstones.py",
        "        hidden = {digest for one in self.tombstones for digest in (one.shown, one.document)}\n",
        "        hidden = {one.document for one in self.tombstones}\n",
        ("tests/storage/test_tombstones.py::test_refused_rows_of_a_forgotten_document_are_left_out",),
    ),
    Mutant(
        "storage/tombstones.py",
        "        return quarantine.filter(pa.array([not one for one in named], pa.bool_()))\n",
        "        return quarantine.filter(pa.array([not any(named)] * len(quarantine), pa.bool_()))\n",
        ("tests/storage/test_tombstones.py::test_refused_rows_of_a_forgotten_document_are_left_out",),
    ),
    Mutant(
        "storage/runs.py",
        "        elif working == run_id or (not began.leased and alive(began.process)):\n",
        "        elif working == run_id:\n",
        ("tests/flows/test_promote.py::test_a_run_without_a_lease_is_at_work_while_its_process_lives",),
    ),
    Mutant(
        "storage/runs.py",
        "        if run_id not in published and not _was_idle(store, run_id, names)\n",
        "        if run_id not in published\n",
        ("tests/storage/test_runs.py::test_a_run_that_found_nothing_to_do_has_made_no_parts",),
    ),
    Mutant(
        "storage/runs.py",
        "    if store.create(name, record.to_bytes()):\n        return record\n    return get_record(store, name, RunEnd)",
        "    store.create(name, record.to_bytes())\n    return record",
        ("tests/storage/test_runs.py::test_a_run_from_start_to_end",),
    ),
    Mutant(
        "storage/publish.py",
        "        if size != artifact.bytes:\n",
        "        if size is None:\n",
        ("tests/storage/test_publish.py::test_a_missing_or_cut_blob_stops_the_publication",),
    ),
    Mutant(
        "storage/publish.py",
        "    lease.check()\n    data = manifest.to_bytes()\n",
        "    data = manifest.to_bytes()\n",
        ("tests/storage/test_publish.py::test_a_run_that_lost_the_lease_publishes_nothing",),
    ),
    Mutant(
        "storage/holds.py",
        "    return newest if newest is not None and newest.held else None\n",
        "    return newest\n",
        ("tests/storage/test_holds.py::test_the_newest_record_tells_the_state_whatever_its_time",),
    ),
    Mutant(
        "storage/holds.py",
        '    if current is not None and current.version == version and note in ("", current.note):\n',
        '    if current is not None and note in ("", current.note):\n',
        ("tests/storage/test_holds.py::test_a_hold_stands_until_there_is_another_version_or_reason",),
    ),
    Mutant(
        "storage/holds.py",
        "    except CorruptBlob:\n        pass\n    else:\n        if current is None:\n            return None\n",
        "    except CorruptBlob:\n        return None\n    else:\n        if current is None:\n            return None\n",
        ("tests/storage/test_holds.py::test_a_damaged_record_refuses_builds_and_can_be_ended",),
    ),
    Mutant(
        "storage/poison.py",
        "        if find_record(store, name, Poison) is not None:\n            return\n",
        "",
        ("tests/storage/test_poison.py::test_the_first_record_stands_and_a_damaged_one_is_replaced",),
    ),
    Mutant(
        "storage/gc.py",
        "    working = {run.run_id for run in known if run.run_id not in old and _unfinished(run, since)}\n",
        "    working = set[str]()\n",
        ("tests/storage/test_gc.py::test_what_may_be_taken_up_again_stays",),
    ),
    Mutant(
        "storage/gc.py",
        "    numbers = set(refs.aliases(store).values())\n",
        "    numbers = {there[-1].version}\n",
        (
            "tests/storage/test_gc.py::test_an_alias_keeps_its_version_and_so_does_a_kept_version_with_the_same_manifest",
        ),
    ),
    Mutant(
        "storage/gc.py",
        "    return entry is not None and entry.modified > limit\n",
        "    return entry is not None and entry.modified < limit\n",
        ("tests/storage/test_gc.py::test_without_a_policy_every_version_is_kept",),
    ),
    Mutant(
        "storage/gc.py",
        '        if name.endswith("/closed.json") and not _young',
        "        if not _young",
        ("tests/storage/test_batches.py::test_collection_keeps_open_batches_and_drops_old_closed_ones",),
    ),
    Mutant(
        "indexmill/store/folder.py",
        "        if not again and _verified.get(key) == identity:\n",
        "        if _verified.get(key) == identity:\n",
        ("tests/indexmill/store/test_folder.py::test_a_blob_is_hashed_once_and_again_when_asked",),
    ),
    Mutant(
        "indexmill/store/folder.py",
        "            _verified.pop(key, None)\n    if found != digest:\n",
        "            _verified.pop(key, None)\n    if not found:\n",
        ("tests/indexmill/store/test_folder.py::test_a_blob_is_checked_before_it_is_used",),
    ),
    Mutant(
        "indexmill/store/folder.py",
        "    found = digest_of(data)\n    if found != digest:\n",
        "    found = digest_of(data)\n    if not found:\n",
        ("tests/indexmill/store/test_verify.py::test_every_blob_is_missed",),
    ),
    Mutant(
        "indexmill/store/folder.py",
        "    if version > FORMAT_VERSION:\n",
        "    if version > FORMAT_VERSION + 1:\n",
        ("tests/indexmill/store/test_folder.py::test_a_store_of_a_newer_format_is_refused",),
    ),
    Mutant(
        "indexmill/store/reader.py",
        "        if found.version != version:\n",
        "        if found.version > version:\n",
        ("tests/indexmill/store/test_folder.py::test_a_ref_under_another_number_is_refused",),
    ),
    Mutant(
        "indexmill/store/bucket.py",
        "                return bool(found.get(_MARK) == mark)\n",
        "                return True\n",
        ("tests/indexmill/store/test_bucket.py::test_a_create_is_made_once_whatever_happens_to_its_answer",),
    ),
    Mutant(
        "indexmill/store/blob_cache.py",
        "            if total <= self.most or used > now - _IN_USE:\n",
        "            if total <= self.most:\n",
        (
            "tests/indexmill/store/test_blob_cache.py::test_what_was_used_least_recently_goes_first_and_nothing_that_is_in_use",
        ),
    ),
    Mutant(
        "indexmill/store/assemblies.py",
        "        found = (self._find(record, opened, trust=False) for record in self._others(name))\n",
        "        found = (self._find(record, opened) for record in self._others(name))\n",
        ("tests/indexmill/store/test_assemblies.py::test_a_damaged_file_of_another_snapshot_is_not_copied",),
    ),
    Mutant(
        "indexmill/store/assemblies.py",
        "        if not are_at_hand(self._keys_elsewhere(name)):\n            return None\n",
        "",
        ("tests/indexmill/store/test_assemblies.py::test_files_that_lack_what_would_be_fetched_are_not_verified",),
    ),
    Mutant(
        "indexmill/store/checked_packs.py",
        "            starts[number] = start if file == before else check(pack.artifact).start\n",
        "            starts[number] = start if pack.key in known else check(pack.artifact).start\n",
        ("tests/indexmill/store/test_checked_packs.py::test_what_another_snapshot_has_of_a_file_is_not_checked_again",),
    ),
    Mutant(
        "indexmill/store/assemblies.py",
        "            is_known = trust and is_own(status) and kept.file == _file_of(status)\n",
        "            is_known = False\n",
        (
            "tests/indexmill/store/test_assemblies.py::test_the_next_process_trusts_the_file_that_was_verified_and_no_other",
        ),
    ),
    Mutant(
        "indexmill/store/checked_packs.py",
        "            if path is not None and isinstance(schema, dict) and _file_of(path.stat()) == known:\n",
        "            if path is not None and isinstance(schema, dict) and path.exists():\n",
        ("tests/indexmill/store/test_checked_packs.py::test_another_file_has_to_be_checked",),
    ),
    Mutant(
        "indexmill/store/packs.py",
        "            if size != start + data:\n",
        "            if size < start + data:\n",
        ("tests/indexmill/store/test_packs.py::test_a_hostile_file_is_refused",),
    ),
    Mutant(
        "indexmill/store/packs.py",
        "    if _header(entries) != header:\n",
        "    if len(_header(entries)) != len(header):\n",
        ("tests/indexmill/store/test_packs.py::test_a_hostile_file_is_refused",),
    ),
    Mutant(
        "indexmill/store/packs.py",
        "dtype not in DTYPES:\n                raise CorruptBlob",
        "dtype is None:\n                raise CorruptBlob",
        ("tests/indexmill/store/test_packs.py::test_a_hostile_file_is_refused",),
    ),
    Mutant(
        "indexmill/store/packs.py",
        "            empty.setflags(write=False)\n",
        "            pass\n",
        ("tests/indexmill/store/test_packs.py::test_arrays_are_mapped_aligned_and_read_only",),
    ),
    Mutant(
        "indexmill/store/manifest.py",
        "        if oldest > READER_VERSION:\n",
        "        if oldest > READER_VERSION + 1:\n",
        ("tests/indexmill/store/test_manifest.py::test_a_manifest_that_needs_a_newer_reader_says_so",),
    ),
    Mutant(
        "indexmill/store/manifest.py",
        "        if self.version != (self.parent or 0) + 1:\n",
        "        if self.version <= (self.parent or 0):\n",
        ("tests/indexmill/store/test_manifest.py::test_a_ref_that_makes_no_sense_is_refused",),
    ),
    Mutant(
        "indexmill/retrieve/masks.py",
        "        return found if condition.holds else ~found\n",
        "        return found if condition.holds else self.present & ~found\n",
        ("tests/indexmill/retrieve/test_filters.py::test_a_filter_leaves_the_documents_that_it_holds_for",),
    ),
    Mutant(
        "indexmill/retrieve/masks.py",
        "            yield self._texts[found if number is None else found & ~self._numeral]\n",
        "            yield self._texts[found]\n",
        (
            "tests/indexmill/retrieve/test_filters.py::test_a_text_that_is_written_as_a_number_is_compared_as_one_with_a_word_that_is",
        ),
    ),
    Mutant(
        "indexmill/store/exported.py",
        "        if digest != artifact.digest:\n",
        "        if not digest:\n",
        ("tests/flows/test_export.py::test_a_file_of_an_export_with_other_bytes_of_the_same_length_is_refused",),
    ),
    Mutant(
        "indexmill/store/verify.py",
        "        if artifact.rows is not None and rows != artifact.rows:\n",
        "        if artifact.rows is not None and rows < artifact.rows:\n",
        ("tests/indexmill/store/test_verify.py::test_a_manifest_that_disagrees_with_its_blobs_is_reported",),
    ),
    Mutant(
        "indexmill/store/verify.py",
        "artifact.bytes, again=True)",
        "artifact.bytes)",
        ("tests/indexmill/store/test_verify.py::test_a_byte_that_rots_without_a_trace_in_the_folder_is_found",),
    ),
    Mutant(
        "indexmill/models/bounded_http.py",
        "        if self._response.is_success and len(self.content) > self._largest:\n            raise",
        "        if len(self.content) > 100 * self._largest:\n            raise",
        ("tests/indexmill/models/test_bounded_http.py::test_an_answer_without_end_is_cut_off_and_takes_no_memory",),
    ),
    Mutant(
        "indexmill/models/openai_batches.py",
        "                        if len(chunk) > left:\n",
        "                        if False:\n",
        ("tests/tasks/llm/test_batch.py::test_a_file_of_answers_that_is_too_large_is_read_as_far_as_it_may_be",),
    ),
    Mutant(
        "tasks/llm/ask.py",
        "            if bad.is_final or bill.useless >= USELESS:\n",
        "            if bill.useless >= USELESS:\n",
        ("tests/tasks/llm/test_ask.py::test_what_is_withheld_is_paid_once_and_said_in_quarantine",),
    ),
    Mutant(
        "tasks/llm/ask.py",
        "        if not self.answered and (len(self.rejected) > 1 or last.answered):\n",
        "        if not self.answered and len(self.rejected) > 1:\n",
        (
            "tests/tasks/llm/test_ask.py::test_an_endpoint_that_completes_nothing_ends_the_run_and_no_prompt_is_to_blame",
        ),
    ),
    Mutant(
        "tasks/llm/batch_steps.py",
        '        batch = batches.record(self._store, batch, Starting(created=self.now()))\n        fault_point("batch-start")\n',
        '        fault_point("batch-start")\n',
        ("tests/tasks/llm/test_batch.py::test_a_page_in_the_place_of_a_batch_is_looked_past",),
    ),
    Mutant(
        "tasks/llm/batch_steps.py",
        '            self._patiently(partial(self._endpoint.delete, file_id))\n            fault_point("batch-barred")\n',
        '            fault_point("batch-barred")\n',
        ("tests/tasks/llm/test_batch.py::test_a_start_that_arrives_late_finds_no_file",),
    ),
    Mutant(
        "tasks/llm/account.py",
        "        if not self._fits(call, self._spent, self._aside):\n            raise self._reached(call)\n",
        "        if not self._fits(call, self._spent):\n            raise self._reached(call)\n",
        ("tests/tasks/llm/test_account.py::test_a_batch_is_set_aside_at_once_or_not_at_all",),
    ),
    Mutant(
        "tasks/llm/account.py",
        "            if not self._fits(call, self._spent):\n                self.end",
        "            if not self._fits(call):\n                self.end",
        ("tests/tasks/llm/test_account.py::test_a_call_that_cannot_fit_any_more_ends_the_asking",),
    ),
    Mutant(
        "tasks/llm/account.py",
        "        self._aside.add(call.tokens, call.cost, -1)\n        self._spent.add(call.tokens, call.cost)\n",
        "        self._aside.add(call.tokens, call.cost, -1)\n",
        ("tests/tasks/llm/test_account.py::test_what_was_never_settled_is_spent_and_nobody_waits_for_it_for_ever",),
    ),
    Mutant(
        "tasks/llm/account.py",
        "        lane.paused = max(lane.paused, now + seconds)\n",
        "        lane.paused = now + seconds\n",
        ("tests/tasks/llm/test_account.py::test_a_pause_holds_back_all_calls_and_a_shorter_one_does_not_shorten_it",),
    ),
    Mutant(
        "tasks/pipeline/gates.py",
        "    elif before is not None and before - now > max_shrink * before:\n",
        "    elif before is not None and before - now > max_shrink * now:\n",
        ("tests/tasks/pipeline/test_gates.py::test_a_share_of_the_documents_may_go",),
    ),
    Mutant(
        "tasks/pipeline/gates.py",
        "    if not now and before != 0:\n",
        "    if not now and before:\n",
        ("tests/tasks/pipeline/test_gates.py::test_a_share_of_the_documents_may_go",),
    ),
    Mutant(
        "tasks/pipeline/gates.py",
        "not (whole and found.stand_ins == found.texts)):\n",
        "not whole):\n",
        ("tests/flows/test_stand_ins.py::test_how_many_are_too_many",),
    ),
    Mutant(
        "tasks/stages/write/written_rows.py",
        '[table.filter(pc.invert(table.column("stand_in"))) for table in part.reusable_tables(schema)]',
        "part.reusable_tables(schema)",
        ("tests/contracts/test_writers.py::test_what_gets_no_answer_has_a_fallback_until_it_is_asked_for_again",),
    ),
    Mutant(
        "tasks/core/shards.py",
        "before[high] - before[low] <= limit:\n",
        "before[high] - before[low] < limit:\n",
        ("tests/tasks/core/test_shards.py::test_a_trie_worked_by_hand",),
    ),
    Mutant(
        "tasks/core/shards.py",
        "(0xFF00 >> bit) & 0xFF\n",
        "(0xFF00 >> bit + 1) & 0xFF\n",
        ("tests/tasks/core/test_shards.py::test_shards_partition_the_ids_within_bounds",),
        "the bit that is kept besides is set in the first row only where it is set in all, and is set in what is sought anyway",
    ),
    Mutant(
        "tasks/stages/ingest/shard_plan.py",
        "        order = order[out[order] < 0]\n",
        "        pass\n",
        ("tests/tasks/stages/ingest/test_shard_plan.py::test_a_forgotten_document_is_as_if_it_had_never_been_there",),
    ),
    Mutant(
        "tasks/stages/resolve/resolve.py",
        "descending=[False, True, True, False])",
        "descending=[False, True, True, True])",
        (
            "tests/tasks/stages/resolve/test_resolve.py::test_an_entity_is_shown_as_it_is_mentioned_then_as_passages_tell_of_it",
        ),
    ),
    Mutant(
        "tasks/families/zoom_graph/choose.py",
        "    keys = coding.keys(rows[found], _steps(products[found, partners]), partners + first)\n",
        "    keys = coding.keys(rows[found], _steps(products[found, partners]), partners)\n",
        ("tests/tasks/families/zoom_graph/test_choose.py::test_the_sizes_of_strips_and_tiles_change_nothing",),
    ),
    Mutant(
        "tasks/families/zoom_graph/links.py",
        "    return not is_much(len(gone) + len(fresh) - 2 * same, n) and rule.is_exact(before) == rule.is_exact(n)\n",
        "    return rule.is_exact(before) == rule.is_exact(n)\n",
        (
            "tests/tasks/families/zoom_graph/test_links.py::test_ranges_of_rows_are_compared_where_nothing_can_be_refreshed",
        ),
    ),
    Mutant(
        "tasks/families/zoom_graph/choose.py",
        "((self.kept[was_in & ~is_in], -1), (self.kept[is_in & ~was_in], 1))",
        "((self.kept[was_in & ~is_in], -1),)",
        ("tests/tasks/families/zoom_graph/test_choose.py::test_an_update_ends_in_the_bits_of_a_rebuild",),
    ),
    Mutant(
        "tasks/families/zoom_graph/blocks.py",
        "        was[lay[lay < len(was) - 1]] = number\n",
        "        was[lay[lay < len(was) - 1]] = 0\n",
        ("tests/tasks/families/zoom_graph/test_blocks.py::test_refreshed_cells_are_those_of_all_rows",),
    ),
    Mutant(
        "tasks/families/zoom_graph/choose.py",
        "(counts[self.kept] < cap) & (limits[self.kept] < known)",
        "(counts[self.kept] < cap - 1) & (limits[self.kept] < known)",
        ("tests/tasks/families/zoom_graph/test_choose.py::test_an_update_ends_in_the_bits_of_a_rebuild",),
    ),
    Mutant(
        "tasks/families/lsh_tree/segmentation.py",
        "        cuts[at] = high - low > largest\n",
        "        cuts[at] = high - low >= largest\n",
        ("tests/tasks/families/lsh_tree/test_segmentation.py::test_segments_are_those_of_the_trie",),
    ),
    Mutant(
        "flows/operation.py",
        "                lease.check()  # a lost lease is the cause\n",
        "                pass\n",
        ("tests/tasks/pipeline/test_build.py::test_a_run_that_lost_its_lease_stops_and_says_so",),
    ),
    Mutant(
        "flows/interrupt.py",
        "            if self._came:\n                raise KeyboardInterrupt(self._name)\n            yield\n",
        "            yield\n",
        ("tests/flows/test_interrupt.py::test_stages_that_begin_again_after_a_signal_do_not",),
    ),
    Mutant(
        "storage/folder.py",
        "stays = hash_file(aside)[0] == digest",
        "stays = False",
        ("tests/storage/test_folder.py::test_only_a_damaged_blob_is_discarded",),
    ),
    Mutant(
        "storage/copies.py",
        "return same > 0",
        "return True",
        ("tests/flows/test_repair.py::test_what_makes_a_folder_a_store_is_not_taken_from_any_store",),
    ),
    Mutant(
        "storage/repair.py",
        'outcome = "rebuild" if newest in need.versions else "lost" if need.served else "dropped"',
        'outcome = "rebuild" if newest in need.versions else "lost"',
        ("tests/flows/test_repair.py::test_a_part_of_an_older_version_that_no_reader_needs_is_removed_and_not_missed",),
    ),
    Mutant(
        "storage/deletions.py",
        "    if latest != seen:\n",
        "    if False:\n",
        ("tests/storage/test_deletions.py::test_nothing_is_removed_where_another_run_published_meanwhile",),
    ),
    Mutant(
        "storage/deletions.py",
        "        if epoch not in working:\n",
        "        if True:\n",
        ("tests/storage/test_deletions.py::test_a_version_waits_for_the_end_of_a_run_that_may_remove_its_blobs",),
    ),
    Mutant(
        "storage/publish.py",
        "    deletions.check_unannounced(store, needed, lease.clock)\n",
        "    pass\n",
        ("tests/storage/test_interleavings.py::test_a_collection_that_stops_anywhere_while_another_run_publishes",),
    ),
    Mutant(
        "storage/publish.py",
        "        _restore(store, missing, at_hand)\n",
        "        pass\n",
        (
            "tests/storage/test_interleavings.py::test_a_writer_that_stops_anywhere_while_collections_remove_what_it_needs",
        ),
    ),
    Mutant(
        "storage/gc.py",
        "        _check_whole(store, kept[-1], every)\n",
        "        pass\n",
        ("tests/storage/test_deletions.py::test_no_version_goes_while_the_newest_lacks_a_blob",),
    ),
    Mutant(
        "indexmill/store/regular_files.py",
        "if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):",
        "if False:",
        (
            "tests/indexmill/store/test_regular_files.py::test_what_has_become_a_pipe_since_it_was_looked_at_is_not_read",
        ),
    ),
    Mutant(
        "indexmill/store/tables.py",
        "_check_size(_decoded_bytes(table), artifact, where)",
        "_check_size(table.nbytes, artifact, where)",
        ("tests/indexmill/store/test_tables.py::test_a_long_text_does_not_become_many",),
    ),
    Mutant(
        "indexmill/store/pack_checks.py",
        "(parents[children] != owners).any()",
        "False",
        ("tests/indexmill/store/test_pack_checks.py::test_a_tree_that_is_none_is_told",),
    ),
    Mutant(
        "indexmill/store/exported.py",
        "if digest not in (None, found):",
        "if False:",
        ("tests/indexmill/test_snapshot.py::test_a_manifest_may_be_pinned",),
    ),
    Mutant(
        "indexmill/forks.py",
        "self._changed.wait_for(lambda: not self._depths.keys() - {threading.get_ident()}, self.PATIENCE)",
        "pass",
        ("tests/indexmill/test_forks.py::test_a_fork_waits_for_what_is_loaded_but_not_for_ever",),
    ),
    Mutant(
        "indexmill/text/normalise.py",
        "if marks > _MOST:",
        "if False:",
        ("tests/indexmill/test_snapshot.py::test_a_run_of_combining_marks_is_broken_up",),
    ),
    Mutant(
        "tasks/stages/ingest/spill.py",
        "position[1] = number",
        "position[1] = number - 1",
        (
            "tests/tasks/stages/ingest/test_supervisor.py::test_of_a_file_of_records_the_rows_before_the_one_that_crashes_are_kept",
        ),
    ),
    Mutant(
        "tasks/stages/ingest/supervisor.py",
        "if not ended.slow:",
        "if False:",
        ("tests/tasks/stages/ingest/test_supervisor.py::test_a_child_that_is_killed_once_refuses_nothing",),
    ),
    Mutant(
        "tasks/stages/ingest/scan_process.py",
        "if now - self._since > _BLOCKED * self._seconds:",
        "if now - self._since > self._seconds:",
        ("tests/tasks/stages/ingest/test_supervisor.py::test_waiting_is_not_computing",),
    ),
    Mutant(
        "tasks/stages/ingest/scan_process.py",
        "    _idle.clear()\n",
        "    pass\n",
        ("tests/tasks/stages/ingest/test_supervisor.py::test_a_process_that_is_forked_has_children_of_its_own",),
    ),
    Mutant(
        "tasks/stages/ingest/refused.py",
        'further = pc.and_(pc.is_in(refused["reason"], pa.array(_FAILED)), pc.is_null(refused["document_id"]))',
        'further = pc.is_in(refused["reason"], pa.array(_FAILED))',
        (
            "tests/tasks/stages/ingest/test_refused.py::test_a_text_file_that_failed_holds_nothing_further_and_a_file_of_records_may",
        ),
    ),
    Mutant(
        "tasks/stages/ingest/formats/front_matter.py",
        "    if len(front) > MAX_CHARACTERS:",
        "    if len(front) >= MAX_CHARACTERS:",
        ("tests/tasks/stages/ingest/formats/test_front_matter.py::test_the_limits_are_where_they_are_said_to_be",),
    ),
    Mutant(
        "tasks/stages/ingest/formats/front_matter.py",
        "            self._anchored[anchor] = size, height",
        "            self._anchored[anchor] = 1, height",
        (
            "tests/tasks/stages/ingest/formats/test_front_matter.py::test_what_is_over_a_limit_or_not_plain_is_told_at_once",
        ),
    ),
    Mutant(
        "tasks/stages/ingest/sources.py",
        "path.startswith(root.rstrip(os.sep) + os.sep)",
        "path.startswith(root)",
        ("tests/tasks/stages/ingest/test_sources.py::test_a_link_that_leaves_the_corpus_is_no_file_of_it",),
    ),
    Mutant(
        "tasks/stages/ingest/formats/readers.py",
        "            expanded += max(texts, batch.nbytes) + _ROW_BYTES * batch.num_rows",
        "            expanded += batch.nbytes + _ROW_BYTES * batch.num_rows",
        (
            "tests/tasks/stages/ingest/formats/test_readers.py::test_a_small_parquet_file_of_very_many_long_texts_is_not_read_to_its_end",
        ),
    ),
    Mutant(
        "tasks/stages/ingest/formats/readers.py",
        "            refused = refused + 1 if isinstance(row, Refusal) else 0",
        "            refused += isinstance(row, Refusal)",
        (
            "tests/tasks/stages/ingest/formats/test_readers.py::test_a_file_of_nothing_but_bad_rows_is_not_read_to_its_end",
        ),
    ),
    Mutant(
        "flows/scratch.py",
        "        if os.fstat(lock).st_uid != os.geteuid():",
        "        if False:",
        ("tests/flows/test_scratch.py::test_folders_of_another_user_are_left",),
    ),
    Mutant(
        "flows/scratch.py",
        "            if entry.name.startswith(PREFIX):",
        '            if entry.name.startswith("indexmill-"):',
        ("tests/flows/test_scratch.py::test_only_folders_whose_process_is_gone_are_removed",),
    ),
    Mutant(
        "flows/scratch.py",
        "        if _owner_is_gone(folder):",
        "        if True:",
        ("tests/flows/test_scratch.py::test_folders_that_name_no_process_are_left_unless_they_are_empty",),
    ),
    Mutant(
        "flows/scratch.py",
        "(living is None and same_boot(owner))",
        "(living is None)",
        ("tests/flows/test_scratch.py::test_folders_of_another_machine_or_a_live_process_are_left",),
    ),
    Mutant(
        "flows/server.py",
        "urllib.request.build_opener(urllib.request.ProxyHandler({}))",
        "urllib.request.build_opener()",
        ("tests/flows/test_server.py::test_a_health_check_with_a_password_goes_through_no_proxy",),
    ),
    Mutant(
        "flows/server.py",
        "{**server.environment, **_without_proxy(_HOST)}",
        "server.environment",
        ("tests/flows/test_server.py::test_no_proxy_is_told_the_password",),
    ),
    Mutant(
        "flows/credentials.py",
        "    _write(folder / _KEY, text)\n    _write(folder / _CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))\n",
        "    _write(folder / _CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))\n    _write(folder / _KEY, text)\n",
        ("tests/flows/test_credentials.py::test_credentials_are_whole_after_a_process_that_was_killed",),
    ),
    Mutant(
        "flows/remote_cluster.py",
        'address.partition("://")[0] if "://" in address else str(dask.config.get("distributed.comm.default-scheme"))',
        'address.partition("://")[0]',
        ("tests/flows/test_strangers.py::test_an_address_that_does_not_fit_the_settings_of_dask_is_bad_input",),
    ),
    Mutant(
        "tasks/core/isolate.py",
        "worker_environment(endpoints, job.store_url, asks=stage.requests is not None)",
        "worker_environment(endpoints, job.store_url, asks=True)",
        (
            "tests/tasks/core/test_process_environment.py::test_a_trial_is_given_a_key_only_where_its_stage_asks_a_language_model",
        ),
    ),
    Mutant(
        "tasks/core/process_environment.py",
        "if _OF_A_READER.fullmatch(name) and name not in secret",
        "if name not in secret",
        (
            "tests/tasks/core/test_process_environment.py::test_a_process_that_reads_is_given_no_variable_but_those_it_needs",
        ),
    ),
    Mutant(
        "tasks/core/process_environment.py",
        "    named = {endpoint.api_key_env for endpoint in endpoints}",
        "    named: set[str] = set()",
        ("tests/flows/test_strangers.py::test_workers_have_a_key_only_where_a_language_model_may_be_asked",),
    ),
    Mutant(
        "storage/deletions.py",
        "    lease.check()\n    latest = ",
        "    latest = ",
        ("tests/storage/test_deletions.py::test_the_lease_is_looked_at_between_deletions",),
    ),
    Mutant(
        "storage/refs.py",
        "        check_there(store, version)  # the version may have been removed meanwhile: then the alias has to move again\n",
        "        pass\n",
        ("tests/storage/test_refs.py::test_an_alias_that_moves_to_a_version_as_that_is_removed_says_so",),
    ),
    Mutant(
        "storage/forget.py",
        "    if remains:\n",
        "    if False:\n",
        ("tests/flows/test_forget_races.py::test_what_another_run_writes_while_blobs_go_is_not_taken_for_forgotten",),
    ),
    Mutant(
        "storage/forget.py",
        "    aliases |= _move_aliases(store, search, newest, created)  # moving one needs no lease\n",
        "",
        ("tests/flows/test_forget_races.py::test_an_alias_that_moves_to_a_version_as_that_is_withdrawn_moves_on",),
    ),
    Mutant(
        "indexmill/snapshot_artifacts.py",
        "            with self._lock:\n                self._check_open()\n                value = self._cache.get(key)\n",
        "            if True:\n                self._check_open()\n                value = self._cache.get(key)\n",
        ("tests/indexmill/test_snapshot.py::test_what_many_threads_want_first_is_made_once_and_whole",),
    ),
    Mutant(
        "tasks/stages/ingest/shard_plan.py",
        "    poisonous = poisonous[np.isin(poisonous, order)]\n",
        "",
        ("tests/tasks/stages/ingest/test_shard_plan.py::test_a_document_that_is_forgotten_is_not_refused_as_poison",),
    ),
    Mutant(
        "tasks/pipeline/gates.py",
        "    if before is None or before == now or now == Access(before.field, required=True):\n",
        "    if before is None or now is None or before == now or now == Access(before.field, required=True):\n",
        (
            "tests/indexmill/rights/test_building.py::test_rights_that_would_let_others_read_are_refused_before_anything_is_made",
        ),
    ),
    Mutant(
        "tasks/pipeline/corpus.py",
        "        self._refuse_rights()\n        self._folder.mkdir",
        "        self._folder.mkdir",
        (
            "tests/indexmill/rights/test_building.py::test_rights_that_would_let_others_read_are_refused_before_anything_is_made",
        ),
    ),
    Mutant(
        "indexmill/families/community_tree/search.py",
        "(self.passages.counts_of(passages) == lengths) & (lengths > 0)",
        "self.passages.counts_of(passages) > 0",
        ("tests/indexmill/rights/test_rights.py::test_nothing_of_a_document_that_is_not_readable_gets_out",),
    ),
    Mutant(
        "indexmill/families/heterograph/search.py",
        "        found[made] = allowed[made] == np.diff(self.passages.indptr)[made]\n",
        "",
        ("tests/indexmill/rights/test_rights.py::test_nothing_of_a_document_that_is_not_readable_gets_out",),
    ),
    Mutant(
        "indexmill/families/heterograph/search.py",
        '        leads[self.rows("N", "O")] = False\n',
        "",
        (
            "tests/indexmill/families/heterograph/test_search.py::test_a_name_is_not_allowed_for_its_link_to_another_name",
        ),
    ),
    Mutant(
        "indexmill/retrieve/entity_labels.py",
        "        found[named.entities[named.as_shown & readable[named.passages]]] = True\n",
        "        found[named.entities[named.as_shown]] = True\n",
        ("tests/indexmill/rights/test_rights.py::test_nothing_of_a_document_that_is_not_readable_gets_out",),
    ),
    Mutant(
        "indexmill/retrieve/entity_labels.py",
        "        found[named.passages[~self._spelled(passages, packed)[named.entities]]] = False\n",
        "",
        ("tests/indexmill/rights/test_rights.py::test_nothing_of_a_document_that_is_not_readable_gets_out",),
    ),
    Mutant(
        "indexmill/families/zoom_graph/graph.py",
        "graph.matrix.without(~documents, ~inside & (graph.spread > 0))",
        "graph.matrix",
        (
            "tests/indexmill/rights/test_vectors.py::test_documents_are_walked_over_without_hidden_ones_and_names_that_only_these_have",
        ),
    ),
    Mutant(
        "indexmill/retrieve/worker_pool.py",
        "replace(asked, encode=None, shared={})",
        "replace(asked, encode=None, shared={}, readable=None)",
        ("tests/indexmill/rights/test_rights.py::test_helpers_keep_to_rights",),
    ),
    Mutant(
        "indexmill/snapshot.py",
        'if name not in ("parameters", "rerank")]',
        'if name not in ("parameters", "rerank", "principals")]',
        (
            "tests/indexmill/rights/test_rights.py::test_threads_that_ask_at_once_for_several_readers_get_what_each_may_read",
        ),
    ),
)
