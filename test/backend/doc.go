// SPDX-License-Identifier: Apache-2.0

// Package backend is one suite for all backends: what users ask for of pods, tenants, machines,
// Services, gateways and floating IPs has to come about with each of them, on whole agents and a
// real Open vSwitch, with OVN on its own programs, and with Neutron on a real one and OVN (with the
// build tag neutron). It asserts what packets do, and nothing of how a backend has them do it; what
// differs by design is in the tables of docs/operate/backends.md and, of Neutron, in that of
// docs/develop/neutron.md, of which cases that are skipped name the row.
package backend
