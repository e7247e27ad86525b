// SPDX-License-Identifier: Apache-2.0

// Package allocate makes the decisions that must be the same for all nodes, and decides which
// users' objects take effect: numbers of Networks and Routers, overlapping prefixes, pools and
// addresses of load balancers, Networks of namespaces, users' Ports. The controller writes its
// decisions into the API. It is pure, and its results do not depend on the order of its arguments.
package allocate
