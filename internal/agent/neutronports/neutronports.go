// SPDX-License-Identifier: Apache-2.0

// Package neutronports follows which ports of OpenStack's Neutron the Ports of a node are made
// into, as the controller writes it into their statuses and into the node's annotation. ML2/OVN
// gives a Logical_Switch_Port the UUID of its port as its name. The agent itself never asks
// Neutron.
package neutronports

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/intent"
)

// Patience is how long an attachment waits for its port: Neutron takes a tenth of a second for one,
// and seconds when many come at once. A call of the container runtime may take a minute.
const Patience = 50 * time.Second

// Watcher tells of the objects of one node until ctx ends. *kube.Client is one.
type Watcher interface {
	WatchNodePorts(ctx context.Context, update func(kube.Delta[*v1alpha1.Port])) error
	WatchOwnNode(ctx context.Context, update func(kube.Delta[*corev1.Node])) error
}

// Ports are those of one node. New makes it.
type Ports struct {
	api     Watcher
	changes broadcast.Broadcast

	mu    sync.Mutex
	ports map[string]*v1alpha1.Port // by namespace/name
	node  node
}

// node is what the Node says.
type node struct {
	known bool
	port  string // that of the node itself; empty: not known
	vlan  int    // of that, if the node is a machine of OpenStack
	trunk bool   // it is
}

// New returns Ports that know nothing until Run.
func New(api Watcher) *Ports { return &Ports{api: api, ports: map[string]*v1alpha1.Port{}} }

// Run calls changed after each change, until ctx ends.
func (p *Ports) Run(ctx context.Context, changed func()) error {
	note := func(change func()) {
		p.mu.Lock()
		change()
		p.mu.Unlock()
		p.changes.Send()
		changed()
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return p.api.WatchNodePorts(ctx, func(d kube.Delta[*v1alpha1.Port]) {
			note(func() { d.Apply(p.ports, func(o *v1alpha1.Port) string { return o.Namespace + "/" + o.Name }) })
		})
	})
	g.Go(func() error {
		return p.api.WatchOwnNode(ctx, func(d kube.Delta[*corev1.Node]) {
			note(func() {
				for _, n := range d.Set {
					p.node = parse(n)
				}
			})
		})
	})
	return g.Wait()
}

func parse(o *corev1.Node) node {
	n := node{
		known: true, port: o.Annotations[v1alpha1.AnnotationNeutronPort],
		trunk: o.Annotations[v1alpha1.AnnotationTrunkPort] != "",
	}
	if !n.trunk {
		return n
	}
	var err error
	n.vlan, err = strconv.Atoi(o.Annotations[v1alpha1.AnnotationNeutronVLAN])
	if err != nil || n.vlan == 0 {
		n.port = "" // it is not on the trunk yet
	}
	return n
}

// Port is the UUID of the port in Neutron that an attachment has, and its VLAN on the node's trunk,
// if the node has one. Empty: it is not known, or is about to be replaced, as that of a former pod
// of the same name, or is not on the node's trunk yet. The mirror of a static pod has another UID
// than the pod.
func (p *Ports) Port(at attachment.Attachment) (id string, vlan int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.ports[at.PortKey()]
	if !p.node.known || o == nil || o.Status.Neutron == nil || o.Status.Neutron.MAC != at.MAC.String() ||
		p.node.trunk && o.Status.Neutron.VLAN == 0 ||
		o.Spec.Pod != nil && o.Spec.Pod.UID != at.PodUID && !intent.IsStaticUID(at.PodUID) {
		return "", 0
	}
	if p.node.trunk {
		vlan = int(o.Status.Neutron.VLAN)
	}
	return o.Status.Neutron.ID, vlan
}

// Management is Port for that by which the node's kernel reaches pods.
func (p *Ports) Management(string) (id string, vlan int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node.port, p.node.vlan
}

// Known reports whether the Node has been read.
func (p *Ports) Known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node.known
}

// Trunk reports whether the node is a machine of OpenStack.
func (p *Ports) Trunk() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node.trunk
}

// Guest is the UUID of a port in Neutron, which the Port's status has. To a machine of OpenStack,
// which has its ports in VLANs of a trunk, none of another program are plugged.
func (p *Ports) Guest(logical string) (string, bool) {
	return logical, uuid.Validate(logical) == nil && !p.Trunk()
}

// Trace is the command that follows a packet in OVN. It finds the switch by the port.
func (*Ports) Trace(intent.Network, string) string { return "ovn-trace" }

// Changed is closed when a port may be another than at the time of the call.
func (p *Ports) Changed() <-chan struct{} { return p.changes.Changed() }
