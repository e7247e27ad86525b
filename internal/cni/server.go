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
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/keymutex"
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
	// Trunk says that the node is a machine of OpenStack, with ports in VLANs of a trunk.
	Trunk bool
	// NetworkID of the default pod network.
	NetworkID intent.NetworkID
	// Cluster lists what a pod reaches by its first interface although its default route leads
	// elsewhere: the nodes' podCIDRs and addresses. nil: nothing.
	Cluster func() []netip.Prefix
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

// Interfaces makes the pods' interfaces; *podnet.Plumber is the kernel's.
type Interfaces interface {
	// Verify returns a *podnet.NetnsError if a path is not a pod's network namespace.
	Verify(netns string) error
	// Gone says whether a path is surely not a namespace any more.
	Gone(netns string) bool
	// Create makes both ends; on an error it leaves nothing.
	Create(i podnet.Interface) error
	// Configure makes the pod's end what it should be, if it is there.
	Configure(i podnet.Interface) error
	// Check returns what is not as it should be; a *podnet.MissingError if an end is
	// not there.
	Check(i podnet.Interface) error
	// Remove deletes both ends, if they are there.
	Remove(hostName string) error
	// Existing lists the names of all host ends.
	Existing() (map[string]bool, error)
}

// Options are what a Server works with. Store, Dataplane, Node, Interfaces, Planner and
// Foreign are needed.
type Options struct {
	Store      *attachment.Store
	Dataplane  Dataplane
	Node       NodeSource
	Interfaces Interfaces
	// Planner says what pods get.
	Planner Planner
	// Foreign are the bridges of external controllers.
	Foreign ForeignBridges
	// Leases has the addresses of interfaces on Networks where DHCP servers of the physical network
	// give them.
	Leases Leases
	// Changed is called with attachments that were added or removed, after that is stored;
	// Store.Get tells which of the two. It must not block, and may be nil.
	Changed func([]attachment.Attachment)
	// Reserved says that a port of the node's is needed by the node itself. nil: none is.
	Reserved func(p intent.Protocol, port uint16) bool
	// Bridge is the integration bridge's name: configurations may ask for another.
	Bridge string
	// OneBridge says that pods' interfaces have to be ports of Bridge itself.
	OneBridge bool
	// KeepsAddresses says that the node does not masquerade pods, which configurations may ask for.
	KeepsAddresses bool

	Recorder Recorder     // nil: no Events
	Logger   *slog.Logger // nil: slog.Default()
	// Observe is called after each request with the CNI command, the CNI error code (0: success)
	// and the duration. It may be nil.
	Observe func(command string, code uint, took time.Duration)
	// Timeout bounds one request, also if the caller would wait longer; 0: 60 s.
	Timeout time.Duration
}

// Server answers CNI requests. Its methods are safe for concurrent use.
type Server struct {
	opts  Options
	log   *slog.Logger
	locks keymutex.Mutex // by container id
	// warned remembers which warnings about configurations were logged.
	warned        sync.Map
	makingForeign makingForeign
}

// New returns a server.
func New(opts Options) *Server {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Timeout == 0 {
		opts.Timeout = 60 * time.Second
	}
	return &Server{opts: opts, log: opts.Logger}
}

// Handle answers one request. The result is what the plugin prints; GC, DEL, CHECK and
// STATUS have none.
func (s *Server) Handle(ctx context.Context, r wire.Request) ([]byte, *wire.Error) {
	return s.handle(ctx, r, s.parse, s.dispatch)
}

func (s *Server) handle(ctx context.Context, r wire.Request, parse func(wire.Request) (call, []string, error),
	dispatch func(context.Context, call) ([]byte, error),
) ([]byte, *wire.Error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.timeout(r))
	defer cancel()
	c, warnings, err := parse(r)
	s.warn(warnings)
	var result []byte
	if err == nil {
		result, err = dispatch(ctx, c)
	}
	took := time.Since(start)
	if err == nil {
		s.observe(r.Command, 0, took)
		return result, nil
	}
	if errors.Is(err, errAddresses) && r.Delegates {
		// No failure: the plugin asks again.
		return nil, newError(wire.CodeAddresses, errAddresses.Error(), "")
	}
	cniErr := asCNI(err, fmt.Sprintf("%s of %s failed", r.Command, c.subject()))
	if slices.Contains(wire.Versions, c.conf.CNIVersion) {
		cniErr.CNIVersion = c.conf.CNIVersion
	}
	s.observe(r.Command, cniErr.Code, took)
	s.log.Error("CNI request failed", "command", r.Command, "container", r.ContainerID, "interface", r.IfName,
		"pod", c.pod(), "code", cniErr.Code, "error", cniErr.Error(), "took", took)
	if s.opts.Recorder != nil && r.Command == cmdAdd && c.PodNamespace != "" && c.PodName != "" && c.PodUID != "" {
		s.opts.Recorder.PodWarning(c.PodNamespace, c.PodName, c.PodUID, eventReason(err), cniErr.Error())
	}
	return nil, cniErr
}

// timeout leaves a part of the time that the plugin waits for undoing what was done.
func (s *Server) timeout(r wire.Request) time.Duration {
	asked := time.Duration(r.TimeoutMillis) * time.Millisecond * 4 / 5
	if asked <= 0 {
		return s.opts.Timeout
	}
	return min(asked, s.opts.Timeout)
}

func (s *Server) dispatch(ctx context.Context, c call) ([]byte, error) {
	switch c.command {
	case cmdAdd:
		return s.add(ctx, c)
	case cmdDel:
		return nil, s.del(ctx, c)
	case cmdCheck:
		return nil, s.check(ctx, c)
	case cmdGC:
		return nil, s.gc(ctx, c)
	default:
		if c.conf.Foreign != nil {
			return nil, s.statusForeign(ctx, c)
		}
		return nil, s.status(ctx)
	}
}

func (s *Server) observe(command string, code uint, took time.Duration) {
	if s.opts.Observe != nil {
		s.opts.Observe(command, code, took)
	}
}

// warn logs each warning once: every pod comes with the same configuration.
func (s *Server) warn(warnings []string) {
	for _, w := range warnings {
		if _, logged := s.warned.LoadOrStore(w, true); !logged {
			s.log.Warn("the CNI network configuration has a key without effect", "problem", w)
		}
	}
}
