//! One list of behaviours that libvirt, QEMU, Ceph and file systems have, seen through the ports, held against the
//! programmable world always and against the real ones in the laboratory. Where the two differ, the world is wrong.
//!
//! The real half needs the settings that `lab-up.sh` writes; without them each of its tests says that it was skipped.

#[path = "contract/copies.rs"]
mod copies;
#[path = "contract/domains.rs"]
mod domains;
#[path = "contract/ends.rs"]
mod ends;
#[path = "contract/fake.rs"]
mod fake;
#[path = "contract/files.rs"]
mod files;
#[path = "contract/headers.rs"]
mod headers;
#[path = "contract/images.rs"]
mod images;
#[path = "real_ports/lab.rs"]
#[allow(dead_code, reason = "shared with the tests of the real ports alone")]
mod lab;
#[path = "contract/marks.rs"]
mod marks;
#[path = "contract/offline.rs"]
mod offline;
#[path = "contract/real.rs"]
mod real;
#[path = "contract/secrets.rs"]
mod secrets;
#[path = "contract/stage.rs"]
mod stage;

/// Each behaviour twice. One that is missing here is unused, which the lints refuse.
macro_rules! contract {
    ($($module:ident::$name:ident;)*) => {
        mod in_the_programmable_world {
            $(
                #[tokio::test(start_paused = true)]
                async fn $name() {
                    crate::$module::$name(&crate::fake::FakeStage::new()).await;
                }
            )*
        }

        mod on_the_real_ones {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let Some(stage) = crate::real::RealStage::new(stringify!($name)).await else {
                        return;
                    };
                    crate::$module::$name(&stage).await;
                }
            )*
        }
    };
}

contract! {
    copies::a_second_copy_on_a_disk_is_busy;
    copies::a_pivot_before_ready_changes_nothing;
    copies::without_a_job_there_is_nothing_to_end;
    copies::a_persistent_domain_needs_the_flag_of_a_transient_job;
    copies::a_transient_domain_is_copied_with_and_without_that_flag;
    copies::a_copy_needs_a_destination_and_a_disk;
    copies::the_numbers_are_never_equal_before_ready;
    copies::a_limit_is_shown_changed_and_lifted;
    copies::a_destination_of_another_size_fails_a_little_later;
    ends::a_pivot_moves_qemu_and_both_xmls;
    ends::an_abort_before_ready_leaves_the_source;
    ends::an_abort_in_step_is_completed_for_qemu_and_cancelled_for_libvirt;
    ends::a_stored_definition_with_another_source_is_not_rewritten;
    ends::a_pivot_to_an_unlinked_file_succeeds;
    ends::a_pivot_to_an_image_that_lost_its_name_succeeds;
    ends::a_disk_can_be_copied_again_after_a_pivot_and_an_abort;
    domains::a_domain_that_is_off_has_no_job_and_no_devices;
    domains::a_killed_qemu_takes_its_job_along;
    domains::a_transient_domain_is_gone_when_it_stops;
    domains::a_domain_is_found_by_name_and_uuid_or_not_at_all;
    domains::a_running_disk_has_its_size_and_no_other_disk_exists;
    domains::a_definition_is_stored_beside_the_running_one;
    domains::limits_are_set_on_the_running_disk_and_the_stored_one;
    images::an_open_image_is_renamed_and_not_removed;
    images::an_image_gets_no_name_that_is_taken;
    images::an_image_is_removed_by_its_id_only;
    images::a_name_is_free_after_the_trash_and_may_be_anothers;
    images::a_snapshot_keeps_an_image;
    images::a_clone_depends_on_its_snapshot_until_it_is_flattened;
    images::a_pool_or_cluster_that_is_not_there_is_told_apart;
    marks::a_mark_is_found_under_every_name_until_it_is_taken_away;
    marks::a_private_name_is_found_without_a_mark;
    files::a_file_gets_no_name_that_is_taken;
    files::a_file_is_removed_by_its_identity_only;
    files::a_file_is_sealed_by_its_identity_and_stays_as_it_is;
    files::an_open_file_is_renamed_and_removed;
    files::what_is_not_there_is_told_as_such;
    offline::a_copy_holds_what_its_source_holds;
    offline::an_encrypted_copy_holds_what_its_source_holds;
    offline::a_copy_begins_only_with_what_opens_both_sides;
    offline::a_running_guest_is_a_user_of_its_volume;
    offline::a_copy_that_is_given_up_lets_go_of_both_images;
    offline::a_header_says_what_a_guest_sees;
    headers::a_header_leaves_exactly_the_size_that_was_asked_for;
    headers::a_volume_without_a_header_is_told_from_a_wrong_passphrase;
    headers::an_encrypted_volume_is_copied_into_and_pivoted_to;
    secrets::a_secret_is_found_by_its_volume_and_its_uuid;
    secrets::a_secret_is_defined_again_and_its_value_set_again;
    secrets::a_volume_has_one_secret_and_a_uuid_one_volume;
    secrets::a_secret_that_is_not_there_is_told_as_such;
}
