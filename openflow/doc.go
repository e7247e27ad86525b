// SPDX-License-Identifier: Apache-2.0

// Package openflow speaks OpenFlow 1.5 with the Nicira extensions to Open vSwitch.
package openflow
