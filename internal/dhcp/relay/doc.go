// SPDX-License-Identifier: Apache-2.0

// Package relay makes of what machines ask by DHCP what a relay agent asks servers elsewhere (RFC
// 1542, 3046), and of their answers what machines receive. It does no I/O.
//
// Option 82 of a question says which interface asks. Servers return it as it is, so that an answer
// is known to be one to a question about that interface; machines never see it.
package relay
