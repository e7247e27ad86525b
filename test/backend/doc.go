// SPDX-License-Identifier: Apache-2.0

// Package backend is one suite for all backends: what users ask for of pods, tenants, machines,
// Services, gateways and floating IPs has to come about with each of them, on whole agents and a
// real Open vSwitch, and with OVN on its own programs. It asserts what packets do, and nothing of
// how a backend has them do it; what differs by design is in the table of docs/operate/backends.md.
package backend
