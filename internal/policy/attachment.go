// SPDX-License-Identifier: Apache-2.0

package policy

import "net/netip"

// Attachment is what a node's agent says of a pod that it has just attached. It is known before the
// API has the pod's addresses.
type Attachment struct {
	Namespace, Name string
	// The key of the pod's Subject, by which it is distinguished from others of its name.
	Subject   string
	Addresses []netip.Addr // in the cluster
}
