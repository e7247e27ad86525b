// SPDX-License-Identifier: Apache-2.0

// Package clusterintent makes intent of the whole cluster, for a backend that programs a central
// system: what all agents together know with the backend ovs, and each Port of all nodes. The
// leader alone has it.
//
// Objects come from the manager's cache, policies from the Engine that also serves agents. Package
// translate keeps what was made of them, so that a change costs what it touches.
package clusterintent
