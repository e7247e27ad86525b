// SPDX-License-Identifier: Apache-2.0

// Package dhcprelay asks DHCP servers that Networks name, as a relay agent (RFC 1542, 3046): by
// unicast from the node's address. What they answer it passes on as if it had come from the
// physical network, if one of them says it, to a question of this node, with option 82 as it was
// asked with. It opens its socket when there is something to ask, since other programs may need the
// port on nodes without such Networks.
package dhcprelay
