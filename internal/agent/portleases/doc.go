// SPDX-License-Identifier: Apache-2.0

// Package portleases writes into the status of Ports what their machines have got by DHCP and
// DHCPv6. Machines do not need it, so it waits: for the API server, for its turn among the Ports of
// the node, and until some time has passed since the Port was written last. What waits is in memory
// only. An agent that starts anew learns it from the next request of the machine.
package portleases
