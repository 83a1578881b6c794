"""Tests that `make test` leaves to `make long`, which is run every night and before a release.

`make test` shows each thing that polyarch does once from end to end, each kind of fault once for a role, and each form
in which polyarch is packaged once. What repeats that at every step, with every answer, in large numbers, for minutes,
or with a second program is here, each time with what it adds and which test is always run.

``make older``, a part of that, repeats cluster tests on older versions of Kubernetes: those of what polyarch asks of a
cluster, chosen so that each feature comes, works and goes once. They use the shared sandboxes of ``tests/cluster``.
"""

from collections.abc import Iterable, Mapping

import pytest

ALL = ("test_",)
"""A file of which nothing is always run: what its sentence names is."""
LONG: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "test_api_faults": {
        "conflicts that no server has; those with writers who are there are always run": ("test_a_storm_of_conflicts",),
    },
    "test_control_plane_faults": {
        "minutes, other answers, and only some of the processes; 15 s of 429 and of a slow etcd are always run": (
            "test_an_api_server_that_refuses_everything_for_too_many_requests[429-everybody-3 min",
            "test_an_api_server_that_refuses_everything_for_too_many_requests[429-the controllers",
            "test_an_api_server_that_refuses_everything_for_too_many_requests[429 with",
            "test_an_api_server_that_answers_after_four_seconds",
            "test_an_etcd_that_is_slow[3 min",
        ),
    },
    "test_gates": {
        "a minute and a half; the other controllers are always run": ("test_a_cron_job_that_forbids_overlap",),
        "what Karpenter makes of the conditions, which the other tests of gates see": (
            "test_no_node_is_made_for_a_held_pod",
        ),
    },
    "test_machine_faults": {
        "ten thousand changes; three hundred are always run": (
            "test_a_tenant_whose_pods_and_events_change_all_the_time[10000",
        ),
        "whole processes that log to a full disk; test_run_logs has the log alone": ("test_a_full_disk_under_the_log",),
    },
    "test_operator_faults": {
        "an installation without certificates that are valid; each kind of them is in test_kube_certificates": (
            "test_certificates_that_expired_while_everything_was_off",
        ),
        "a write of the operator's that is late; one of taints is in test_taints_node_faults": (
            "test_a_write_that_arrives_after_another_operator_has_removed_everything",
        ),
        "every step; one of the installation and one of the removal are in test_operator_lifecycle": (
            "test_killed_at_every_step_of_install_and_uninstall",
        ),
        "the operator and Kubernetes 1.30; webhook and controller are in test_api_faults": (
            "test_made_and_deleted_within_a_second_and_an_api_server_as_of_1_30",
        ),
    },
    "test_replica_faults": {
        "a leader that stands still for 40 s; one that stands still is in test_builds_faults, killed ones are here": (
            "test_the_leader_is_paused_for_40_s_and_goes_on",
        ),
        "private images, and hundreds of requests that cost others nothing; kills under load are always run": (
            "test_private_images_while_all_leaders_are_killed",
            "test_400_dry_runs_by_one_user_disturb_nobody",
        ),
        "the same crowd with no fault at all, to compare with": ("test_without_a_fault_the_standby_costs_nothing",),
    },
    "test_long_faults": {
        "half a minute and a whole one; test_registry_faults and test_placement_gated have the same for seconds": ALL
    },
    "test_taints_node_faults": {
        "other faults than answers that are lost; test_taints_faults has them for nodes, DaemonSets and pods": (
            "test_nodes_end_as_if_nothing_had_happened[watch",
            "test_nodes_end_as_if_nothing_had_happened[409",
            "test_nodes_end_as_if_nothing_had_happened[429",
            "test_nodes_end_as_if_nothing_had_happened[500",
            "test_nodes_end_as_if_nothing_had_happened[503",
            "test_an_api_server_that_is_away_for_a_while",
            "test_a_leader_killed_in_the_middle",
        ),
    },
    "test_kind_schemas": {
        "a program of thirty operators' types; test_manifests_kinds compares the table with what it said": ALL
    },
    "test_node_pools": {
        "a program of minutes to build, of 3 000 pools; test_images_node_templates has each operator and field": ALL
    },
    "test_random_manifests": {
        "20 000 files, other ones every night; 500 are always run": (
            "test_what_fix_writes_is_what_it_says_on_random_files[20000",
        ),
    },
    "test_watch_faults": {
        "other faults of watches than an end in mid-line and a 410": (
            "test_pods_are_released_once_whatever_the_watch_does[watch: 410 as a status",
            "test_pods_are_released_once_whatever_the_watch_does[watch: every event twice",
            "test_pods_are_released_once_whatever_the_watch_does[watch: events of objects reordered",
        ),
    },
    "test_installed_faults": {
        "fifty admissions a second for minutes; a roll-out under load is in test_an_upgrade_from": (
            "test_no_admission_fails_while_certificates_and_replicas_are_replaced",
        ),
        "a whole installation; the operator alone is in test_operator_lifecycle and test_operator_taken_away": (
            "test_a_field_that_somebody_keeps_changing",
            "test_an_uninstall_with_200_gated_pods",
            "test_left_by_the_predecessor_and_then_the_namespace_is_deleted_first",
        ),
        "an API server that ends in mid-installation; test_api_faults ends it while pods are placed": (
            "test_the_api_server_is_killed_in_the_middle_of_install_and_uninstall",
        ),
        "a whole installation whose nodes are all lost; test_operator_node_loss loses one": (
            "test_all_nodes_are_lost_at_once_and_come_back",
        ),
        "a whole installation; webhook and controller alone are in test_placement_sweep": (
            "test_pods_created_while_no_webhook_stood_are_found",
        ),
    },
    "test_numa_exact_managers": {
        "32 000 histories; 880 are always run": ("test_a_verdict_is_what_the_kubelets_own_managers_then_do[many",)
    },
    "test_numa_operator_faults": {"every step; bringing and removing is in test_numa_operator": ALL},
    "test_taints_faults": {
        "other faults of watches than a 410 as an event": (
            "test_watches_that_break[watch: EOF in mid-line",
            "test_watches_that_break[watch: 410 as a status",
        ),
        "another answer than 409": ("test_an_api_server_that_refuses",),
        "half a minute; test_taints_pods has images that are late and those that never come": (
            "test_a_registry_that_is_down_for_30_s",
        ),
        "pods of all kinds; test_taints_pods heals one after an outage of the admission": (
            "test_pods_created_while_the_role_is_dead_are_healed_within_10_s",
        ),
        "the taints role; test_api_faults restarts the API server under placement": (
            "test_an_api_server_that_is_restarted_while_nodes_are_tainted",
        ),
    },
    "test_builds_faults": {
        "every step; a builder that stands still in mid-plan and is replaced is always run": (
            "test_killed_at_every_step",
            "test_a_write_that_arrives_after_the_lease_was_lost",
        ),
    },
    "test_builds_registry_faults": {
        "another fault than a 429 and a connection that is reset after the request": (
            "test_one_request_fails[500",
            "test_one_request_fails[503",
            "test_one_request_fails[reset-before",
            "test_one_request_fails[cut",
            "test_one_request_fails[slow",
        ),
    },
    "test_numa_extender_faults": {
        "an eviction that is late; a nomination that is late is always run": (
            "test_a_replica_that_stood_still_evicts_nobody_once_another_has_freed_a_node[eviction",
            "test_an_eviction_that_was_on_its_way_takes_no_pod",
        ),
    },
    "test_numa_exporter_faults": {
        "another answer than 409 and one that is torn": (
            "test_writes_that_fail_lose_no_update_and_write_nothing_old[429",
            "test_writes_that_fail_lose_no_update_and_write_nothing_old[500",
            "test_writes_that_fail_lose_no_update_and_write_nothing_old[503",
            "test_writes_that_fail_lose_no_update_and_write_nothing_old[torn before",
            "test_writes_that_fail_lose_no_update_and_write_nothing_old[slow",
        ),
        "other faults of watches than a 410 as an event and lost events": (
            "test_whatever_a_watch_delivers_the_topology_is_right[EOF",
            "test_whatever_a_watch_delivers_the_topology_is_right[410 as a status",
        ),
        "a wait of half a minute; test_operator_taken_away starts before its definitions, too": (
            "test_a_definition_that_is_missing_is_waited_for",
        ),
        "an API server that hangs, and a node that is made anew; one that is away, and such a node, are always run": (
            "test_an_api_server_that_does_not_answer_stops_no_scan",
            "test_no_reference_to_a_dead_node_is_ever_written",
        ),
    },
    "test_operator_lifecycle": {
        "four times, earlier and later; it is created and deleted in each of the others": (
            "test_created_and_deleted_within_a_second_nothing_is_left",
        ),
        "another propagation, and two hundred pods; thirty are released by force, five when the namespace goes": (
            "test_a_foreground_deletion_takes_the_controller_last",
            "test_two_hundred_gated_pods_are_released_within_a_minute",
        ),
        "a look of half a minute; test_owner_operator and test_numa_operator see passes that send nothing": (
            "test_idle_it_writes_nothing_but_its_lease_and_stays_small",
        ),
        "a predecessor in the same namespace; one in another is always waited for": (
            "test_a_predecessor_in_the_same_namespace_holds_the_lease_and_degraded_says_so",
        ),
    },
    "test_operator_monitor": {
        "a minute's wait for an event that nobody can handle; others are handled in the first test": (
            "test_an_event_that_nobody_can_handle_delays_nothing_for_ever",
        ),
        "removed with placement; disabled it is removed in the first test": (
            "test_an_uninstall_removes_the_monitor_first",
        ),
    },
    "test_operator_edits": {
        "hundreds of edits; some of each operand are always made": (
            "test_hundreds_of_edits_of_all_operands_are_put_right",
        ),
    },
    "test_operator_repairs": {
        "edits that are chosen by hand, and who is told to have made them; test_operator_edits edits every operand, and"
        " who fights over a field is named in test_operator_lifecycle": (
            "test_operands_of_every_feature_are_put_right_and_who_changed_them_is_told",
        ),
        "a Service of the webhook that somebody keeps wrong; the webhook is out of reach in test_operator_reachability,"
        " and somebody keeps changing a field in test_operator_lifecycle": (
            "test_while_somebody_keeps_the_webhooks_service_wrong_placement_is_not_available",
        ),
        "a registration that may not be written; another operand that is refused is always run": (
            "test_a_registration_that_may_not_be_put_right_takes_availability_away",
        ),
    },
    "test_builds_operator": {
        "a machine OS image by the operator's builder; a builder alone makes one in test_builds_machine_os, and the"
        " operator's comes and goes in the test before": (
            "test_by_its_value_machine_os_the_operators_builder_builds_one",
        ),
    },
    "test_operator_monitoring": {
        "kinds of Prometheus that come a minute later, and the runbooks' commands; test_operator_monitor has these"
        " kinds from the beginning, and test_guide_commands types the commands of two pages": ALL,
    },
    "test_operator_taken_away": {
        "all kinds at once, and only some of them; an operator before all of its definitions is always run": (
            "test_an_operator_leads_for_the_kinds_that_exist_and_takes_up_others",
            "test_all_kinds_deleted_at_once_placement_is_removed",
        ),
        "a namespace with pods, and a foreground deletion; test_operator_lifecycle deletes a namespace, too": (
            "test_a_deleted_namespace_leaves_no_gated_pod_and_no_webhook_that_nobody_answers",
            "test_a_deployment_deleted_in_the_foreground_switches_the_conversion_off",
        ),
        "a minute's look at how often it asks; that it waits for finalizers is in test_nobody_prolongs_an_uninstall": (
            "test_an_object_that_others_hold_is_not_asked_for_all_the_time",
        ),
        "a monitor that is left over; test_operator_monitor removes it in order": (
            "test_a_monitor_that_nothing_reminds_of_is_removed_as_well",
        ),
    },
    "test_taints_operator": {
        "placement beside it, other modes, and a dead role; test_taints_admission has both at one webhook, and the"
        " operator applies and removes taints in test_applied_it_taints_and_deleted_nothing_is_left": (
            "test_beside_placement",
            "test_the_other_modes_say_nothing_of_placement",
            "test_a_dead_role_holds_up_nothing_and_a_node_that_cannot_be_written_is_named",
        ),
        "the objects of taints; those of placement are put right in test_operator_lifecycle": (
            "test_what_is_deleted_or_edited_is_put_right",
        ),
        "the operator of taints killed at its steps; that of placement is killed in test_operator_lifecycle": (
            "test_an_operator_that_is_killed_is_followed_by_one_that_goes_on",
        ),
    },
    "test_numa_operator": {
        "a group of two that goes; the only one goes in test_an_object_brings_everything": (
            "test_a_removed_group_and_a_node_that_leaves_it",
        ),
    },
    "test_owner_operator": {
        "a quarrel with this operator; polyarch's own has one in test_operator_lifecycle": (
            "test_what_others_change_is_put_right_and_a_lasting_quarrel_is_told",
        ),
    },
    "test_taints_nodes": {
        "a webhook that is late; DaemonSets that come before the first node are always run": (
            "test_the_first_node_waits_until_the_webhook_is_there",
        ),
        "nodes without the policy; with it they join in test_nodes_join_tainted": (
            "test_without_the_policy_a_new_node_is_tainted_when_it_is_seen",
        ),
        "a minute in which nothing is asked; test_numa_operator and test_numa_exporter look for seconds": (
            "test_the_steady_state_asks_for_nothing_and_a_restart_writes_nothing",
        ),
        "the taints of nodes; test_taints_pods has a configuration from a file, too": (
            "test_a_configuration_from_a_file_needs_no_object",
        ),
    },
    "test_taints_pods": {
        "other ways to an end of the gates than to delete the object": (
            "test_paused_removing_or_without_the_object_every_gate_is_lifted[paused",
            "test_paused_removing_or_without_the_object_every_gate_is_lifted[removing",
        ),
    },
    "test_taints_daemonsets": {
        "a rollout that does not end; one after another they are in test_one_rollout_at_a_time": (
            "test_a_slow_rollout_is_told_and_holds_the_next_until_it_is_confirmed",
        ),
        "minutes; the pauses are always run with a clock moved by hand (test_taints_template_controller)": (
            "test_a_tool_that_applies_its_manifest_again_and_again",
        ),
    },
    "test_sandbox_growth": {
        "a sandbox of an older version; this one's grows in the tests before it": (
            "test_a_sandbox_of_an_older_version_grows_without_moving_its_nodes",
        ),
    },
    "test_taint_clean": {
        "disruption budgets; test_placement_sweep and test_sandbox_pods have one each": (
            "test_a_disruption_budget_is_respected_and_bare_pods_are_only_named",
        ),
        "a removal that is killed after every write; test_taint_commands kills an apply so": (
            "test_a_clean_that_is_killed_after_any_write_is_continued_by_the_next",
        ),
    },
    "test_taint_commands": {
        "without the role; with it nodes join in test_nodes_join_tainted of test_taints_nodes": (
            "test_a_node_that_joins_after_apply_is_tainted_from_the_start",
        ),
    },
    "test_placement_sweep": {
        "forty pods that are only reported; eviction, which finds them in the same way, is always run": (
            "test_all_pods_created_while_the_webhook_was_away_are_reported_within_a_minute",
        ),
    },
    "test_builds_walk": {
        "three kinds of lost pods at once; test_builds_faults has deleted Jobs and pods that lie": (
            "test_attempts_evictions_and_pods_that_vanish_cost_what_they_should",
        ),
    },
    "test_operator_node_loss": {
        "the node's pods leave their Services as well; 15 s before they do are always run": (
            "test_pods_created_while_a_node_is_lost_are_placed_or_found[75 s",
        ),
    },
    "test_numa_preemption": {
        "five hundred clusters; ten are always run": ("test_on_five_hundred_clusters",),
        "a scheduler that is killed, and both; an extender that is killed is always run": (
            "test_the_zone_is_kept_for_the_pod_whoever_is_killed_meanwhile[scheduler",
        ),
        "half a minute's wait, and nobody is killed; five seconds are in the test before it": (
            "test_a_victim_that_takes_half_a_minute",
        ),
    },
    "test_numa_crowd": {"a crowd of 250 pods; single ones are in test_numa_scheduling": ALL},
    "test_numa_scheduling": {
        "two extenders in a sandbox; test_numa_extender_faults has two beside a real API server": (
            "test_of_two_replicas_one_leads_and_the_other_knows_what_was_placed",
        ),
        "other modes, half a minute each; the usual one is always run": (
            "test_nobody_is_evicted_by_the_sums_of_a_node[enabled",
        ),
    },
    "test_guide_commands": {
        "other pages than that of the installation and that for those who come from the predecessor; what they tell is"
        " in the tests of each feature, and test_page_blocks parses all of their commands": (
            "test_the_commands_of_the_page_do_what_it_says[helm.md",
            "test_the_commands_of_the_page_do_what_it_says[kustomize.md",
            "test_the_commands_of_the_page_do_what_it_says[olm.md",
            "test_the_commands_of_the_page_do_what_it_says[taints.md",
            "test_the_commands_of_the_page_do_what_it_says[numa",
            "test_the_commands_of_the_page_do_what_it_says[builds.md",
        ),
    },
    "test_installation_manifests": {
        "other components than cert-manager and builds; test_packaging_chart renders each of them": (
            "test_a_component_does_what_its_setting_does[service-ca",
            "test_a_component_does_what_its_setting_does[openshift",
            "test_a_component_does_what_its_setting_does[two",
            "test_a_component_does_what_its_setting_does[builds on OpenShift",
            "test_a_component_does_what_its_setting_does[machine OS",
            "test_a_component_does_what_its_setting_does[numa",
        ),
        "the output of install --print; kustomize's is applied in test_kubectl_apply": (
            "test_what_is_printed_can_be_applied_by_others",
        ),
        "an upgrade without load; test_an_upgrade_from in test_installed_faults has one under load": (
            "test_manifests_of_an_earlier_version_are_taken_over",
        ),
    },
    "test_installation_commands": {
        "another feature than placement, of which gates and finalizers are removed without an operator": (
            "test_without_an_operator_taints_and_gates_are_removed_from_here",
            "test_builds_leave_nothing_where_no_operator_runs",
            "test_numa_leaves_nothing_where_no_operator_runs",
        ),
        "policies of accounts in a state that they are not turned to; one that was turned off is always run": (
            "test_policies_of_accounts_leave_nothing_where_no_operator_runs[on",
            "test_policies_of_accounts_leave_nothing_where_no_operator_runs[off",
        ),
        "by the command; test_gates_are_removed_at_once in test_operator_lifecycle is by the operator": (
            "test_with_force_nobody_is_waited_for",
        ),
        "a setting of the user's; an upgrade keeps the values of the installation in test_an_upgrade_keeps": (
            "test_what_users_set_in_the_configuration_stays",
        ),
        "other objects of others; a namespace with objects of others is kept in the test before": (
            "test_what_others_labelled_as_polyarchs_is_kept_and_named",
            "test_topologies_of_others_and_their_definition_are_kept_and_named",
            "test_another_operators_numa_is_no_part_of_an_installation_without_it",
        ),
    },
    "test_builds_buildah": {
        "another end of a build pod; four others are always run": ("test_a_base_that_is_gone_is_not_tried_again",),
    },
    "test_packaging_image": {
        "a second build of the image; test_packaging_wheel makes the same bytes again": (
            "test_the_same_commit_and_base_make_the_same_image",
        ),
    },
    "test_packaging_chart_life": {
        "upgrades and a rollback with both Helms; Helm 4 always installs and removes a release": (
            "test_a_release_is_installed_upgraded_rolled_back_and_leaves_nothing",
        ),
        "the older Helm; Helm 4 is always run": ("test_templated_definitions_come_first_and_are_kept[helm-3",),
    },
    "test_packaging_chart": {
        "all files of values with the older Helm; Helm 4 is always run": (
            "test_with_every_values_file_it_is_what_install_prints[helm-3",
            "test_it_is_clean_by_strict_lint[helm-3",
        ),
    },
    "test_packaging_bundle": {
        "OLM's part played on a cluster; the bundle is always judged by OLM's validator and by ours": (
            "test_installed_as_olm_would_it_places_pods_and_judges_custom_resources",
        ),
    },
    "test_packaging_krew": {
        "the same archive once more; test_packaging_wheel makes the same bytes again": (
            "test_the_same_files_make_the_same_archive",
        ),
    },
    "test_integrations_helm": {
        "the older Helm; Helm 4 is always run": (
            "test_a_chart_is_repaired_and_nothing_else_of_it_changes[helm-3",
            "test_an_image_that_nobody_knows_keeps_nothing_from_being_installed[helm-3",
            "test_a_release_is_installed_repaired[helm-3",
        ),
    },
    "test_integrations_action": {
        "the step that installs polyarch; each step is run alone, and test_integrations_pre_commit installs it so": (
            "test_the_whole_action",
        ),
    },
    "test_sandbox_life": {
        "six starts of a sandbox; test_state_survives_down_and_up stops and starts one": (
            "test_polyarch_in_the_sandbox_survives_down_and_follows_its_settings",
        ),
        "a second sandbox; a run of these tests has several side by side": ("test_two_sandboxes_stand_side_by_side",),
    },
    "test_real_exec_errors": {
        "five minutes until a kubelet removes images; the others see them pulled once": (
            "test_images_that_the_kubelet_has_removed",
        ),
    },
    "test_real_numa_scheduling": {
        "other machines, two and a half minutes each; two zones and devices are always run": (
            "test_kubelets_refuse_pods_of_the_stock_scheduler_and_none_of_ours[four zones",
            "test_kubelets_refuse_pods_of_the_stock_scheduler_and_none_of_ours[sub-NUMA clustering",
            "test_kubelets_refuse_pods_of_the_stock_scheduler_and_none_of_ours[CXL",
        ),
    },
    "test_sandbox_egress": {
        "another process than the proxy itself": (
            "test_the_way_is_there_again_after_a_process_was_killed[kube-apiserver",
        ),
    },
}
"""Name of a file to what its tests add to those that are always run, and beginnings of their names."""
OLDER: Mapping[str, tuple[str, ...]] = {
    # Installing, upgrading, uninstalling.
    "test_installation_commands": (
        "test_installs_everything_in_order",
        "test_the_checks_are_listed",
        "test_what_somebody_changed_of_the_operator",
        "test_a_dry_run_writes_nothing",
        "test_nothing_is_left_anywhere",
        "test_without_an_operator_gates_and_finalizers",
        "test_check_prints_a_diff",
        "test_an_upgrade_keeps",
    ),
    "test_operator_lifecycle": (
        "test_created_it_is_available",
        "test_what_is_deleted_or_edited",
        "test_the_namespace_may_be_deleted",
        "test_configs_and_policy_have_a_status",
    ),
    "test_operator_webhooks": ALL,
    # But not its policies that mutate: 1.36 is the first version to serve them by default.
    "test_placement_apply_set": (
        "test_placements_objects",
        "test_whatever_somebody",
        "test_what_others",
        "test_what_cannot",
    ),
    # Placement.
    "test_sandbox_polyarch": ALL,
    "test_placement_assumptions": ALL,
    "test_placement_gated": ALL,
    "test_placement_inline": ALL,
    "test_placement_schema": ALL,
    "test_placement_sweep": ALL,
    # Taints.
    "test_taints_operator": ("test_applied_it_taints", "test_beside_placement"),
    "test_taints_nodes": ALL,
    "test_taints_daemonsets": ALL,
    "test_taints_schema": ALL,
    # Builds.
    "test_builds_operator": ("test_the_builder_comes",),
    "test_builds_walk": ALL,
    "test_builds_schema": ALL,
    # NUMA.
    "test_numa_operator": ALL,
    "test_numa_scheduling": ALL,
    "test_numa_schema": ALL,
    "test_numa_topology_schema": ALL,
    # Admission policies, those of polyarch's own accounts among them.
    "test_operator_tenants": ALL,
    "test_builds_tenants": ALL,
    "test_numa_node_policy": ALL,
    "test_exec_monitor": ("test_a_failed_exec", "test_reports_about_nothing", "test_a_node_side_reports"),
    # The client: lists as streams, watches, leases.
    "test_kube_client_cluster": ALL,
    "test_kube_control_live": ALL,
}
"""Name of a file to beginnings of the tests that ``make older`` repeats on other versions of Kubernetes."""


def left_to_make_long(nodeid: str) -> bool:
    """Whether the test is in the table."""
    path, _, name = nodeid.partition("::")
    file = path.rsplit("/", 1)[-1].removesuffix(".py")
    return any(name.startswith(tests) for tests in LONG.get(file, {}).values())


def repeated_on_older_versions(nodeid: str) -> bool:
    """Whether the test is in that other table."""
    path, _, name = nodeid.partition("::")
    return name.startswith(OLDER.get(path.rsplit("/", 1)[-1].removesuffix(".py"), ()))


def mark(items: Iterable[pytest.Item]) -> None:
    """Give them the markers ``long`` and ``older``."""
    for item in items:
        if left_to_make_long(item.nodeid):
            item.add_marker(pytest.mark.long)
        if repeated_on_older_versions(item.nodeid):
            item.add_marker(pytest.mark.older)


def faults(nodeids: Iterable[str]) -> list[str]:
    """What is wrong with the table, if these are all tests of the files that they are of."""
    tests: dict[str, list[str]] = {}
    for nodeid in nodeids:
        path, _, name = nodeid.partition("::")
        tests.setdefault(path.rsplit("/", 1)[-1].removesuffix(".py"), []).append(name)
    found = []
    for file in LONG.keys() & tests.keys():
        beginnings = [each for names in LONG[file].values() for each in names]
        found += [
            f"{file}.py has no {each}: take it out of tests/long.py"
            for each in beginnings
            if not any(name.startswith(each) for name in tests[file])
        ]
        if ALL[0] not in beginnings and all(name.startswith(tuple(beginnings)) for name in tests[file]):
            found.append(f"{file}.py has no test that is always run: keep one, or write ALL into tests/long.py")
    found += [
        f"{file}.py has no {each}, which is to be run on older versions: take it out of tests/long.py"
        for file in OLDER.keys() & tests.keys()
        for each in OLDER[file]
        if not any(name.startswith(each) for name in tests[file])
    ]
    return sorted(found)
