// SPDX-License-Identifier: Apache-2.0

// Package cloud keeps what a Neutron has of a cluster as is wanted (package resource): it reads
// what there is, makes the calls of a plan, and reads all anew from time to time, since Neutron
// says nothing of changes.
//
// A call that Neutron refuses is a problem of the object that it is for, and the other calls are
// made. A Neutron that is away, busy or does not know the user ends a round: the next one begins
// after a pause, or when a header Retry-After says. No call is repeated before it is known that it
// had no effect.
package cloud
