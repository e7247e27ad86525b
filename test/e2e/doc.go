// SPDX-License-Identifier: Apache-2.0

// Package e2e tests Coelan as its users have it: in a sandbox cluster of one
// control plane node and two workers, installed from deploy/coelan.yaml and
// the image archive, with real pods of both address families.
//
// `make e2e` runs it. It brings up a sandbox of the name e2e and takes it
// down afterward. To look into one that a failed test leaves, or to have it
// up already, name one that stays: COELAN_E2E_SANDBOX=mine.
package e2e
