// SPDX-License-Identifier: Apache-2.0

// Package policies translates NetworkPolicies, ClusterNetworkPolicies and SecurityGroups, and the
// objects that they select, into what the policy engine computes with. It is pure: what it returns
// follows from its arguments alone.
package policies
