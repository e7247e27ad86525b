// SPDX-License-Identifier: Apache-2.0

// Package cni is the agent's side of the CNI plugin: it serves ADD, DEL, CHECK, GC
// and STATUS of the CNI specification 1.1 on a unix socket, makes and removes the
// pods' interfaces, and keeps what it made in the store of package attachment.
//
// What happens on Open vSwitch is behind the interface Dataplane.
package cni

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

// Dataplane connects the host's end of a pod's interface to the network. Every
// method is idempotent and may be called for several attachments at once, but never
// for one attachment at a time by two callers.
type Dataplane interface {
	// Attach makes the port and its flows, and returns when packets of the pod
	// pass. The host interface exists, with the MTU of the attachment.
	Attach(ctx context.Context, a attachment.Attachment) error
	// Detach removes the port and its flows; that they are not there is no error.
	Detach(ctx context.Context, a attachment.Attachment) error
	// Check returns an error if something that Attach makes is missing.
	Check(ctx context.Context, a attachment.Attachment) error
	// Ready returns why pods cannot be attached now; an error that wraps ErrLimited
	// says that also the pods that are attached may be cut off.
	Ready(ctx context.Context) error
}

// ErrLimited marks errors of Dataplane.Ready that mean that running pods may not be
// reached either, such as a stopped Open vSwitch.
var ErrLimited = errors.New("running pods may have limited connectivity")

// Node is what a pod's interface takes over from its node.
type Node struct {
	// PodCIDRs are the node's ranges in order: one, or one of each family. The
	// first address of each is the node's gateway.
	PodCIDRs []netip.Prefix
	// MTU of the pods' interfaces.
	MTU int
	// TXOffload leaves the pod's checksums to the datapath. The userspace datapath
	// cannot complete them: false on netdev.
	TXOffload bool
	// NetworkID of the default pod network.
	NetworkID intent.NetworkID
}

// NodeSource knows the node. An error says what is not known yet, and that the
// runtime should try again.
type NodeSource interface {
	Node() (Node, error)
}

// Recorder tells a pod's user why it does not start.
type Recorder interface {
	// PodWarning records an Event of type Warning on the pod. It does not block.
	PodWarning(namespace, name, uid, reason, message string)
}

// Options are what a Server works with. Store, Dataplane and Node are needed.
type Options struct {
	Store     *attachment.Store
	Dataplane Dataplane
	Node      NodeSource
	// Bridge is the integration bridge's name, for messages about configurations
	// that ask for another.
	Bridge string

	Recorder Recorder     // nil: no Events
	Logger   *slog.Logger // nil: slog.Default()
	// Observe is told about each request that ended: the CNI command, the CNI error
	// code (0: success) and how long it took. nil: nobody is told.
	Observe func(command string, code uint, took time.Duration)
	// Timeout bounds one request, also if the caller would wait longer; 0: 60 s.
	Timeout time.Duration
}
