// SPDX-License-Identifier: Apache-2.0

// Package nodestatus has the node's object in the API say how the node does, by annotations and by
// Events.
package nodestatus

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/nodeconfig"
)

// Options are what a Status is made of.
type Options struct {
	Log    *slog.Logger
	Intent *intent.Store
	// Own is the node's object, or nil while the API has not told of it.
	Own func() *corev1.Node
	// PhysicalNetworks are those of which it is known whether the node is connected, or nil before
	// the backend has looked.
	PhysicalNetworks func() map[string]bool
	// Configuration is what to say of the node's NodeNetworkConfig; nil: nothing.
	Configuration func() nodeconfig.Report
	Writer        Writer
}

// Writer writes annotations of the node's object. Its methods do not block.
type Writer interface {
	NodeMTU(mtu int)
	NodePhysicalNetworks(value string)
	NodeConfiguration(value string)
}

// Status says what is so of a node. It writes only what differs from what the object says.
type Status struct{ Options }

// New returns the status of a node.
func New(o Options) *Status { return &Status{o} }

// Reconciled follows a comparison of the node with intent: only then is its MTU known.
func (s *Status) Reconciled() {
	now := s.Intent.State()
	if n, ok := now.LocalNode(); ok && n.MTU != now.Local().MTU {
		s.Writer.NodeMTU(now.Local().MTU)
	}
	s.Publish()
}

// Publish has the object say to which physical networks the node is connected, and which
// configuration it runs with.
func (s *Status) Publish() {
	s.publishPhysicalNetworks()
	s.PublishConfiguration()
}

// PublishConfiguration has the object say which configuration the node runs with. A node that has
// never had another than the ConfigMap's says nothing.
func (s *Status) PublishConfiguration() {
	own := s.Own()
	if s.Configuration == nil || own == nil {
		return
	}
	now, err := s.Configuration().Encode()
	if err != nil {
		s.Log.Error("cannot report the node's configuration", "err", err)
		return
	}
	const nothing = "{}"
	before, written := own.Annotations[v1alpha1.AnnotationNetworkConfig]
	if now != before && (written || now != nothing) {
		s.Writer.NodeConfiguration(now)
	}
}
