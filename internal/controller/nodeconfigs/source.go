// SPDX-License-Identifier: Apache-2.0

// Package nodeconfigs says which NodeNetworkConfig holds for each node, to agents that ask, and
// writes the status of NodeNetworkConfigs.
package nodeconfigs

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/eventhandler"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/nodeconfig"
	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/policystream/wire"
	"coelan.io/coelan/internal/trigger"
)

// source knows what holds for each node. Every replica has one, since agents ask any of them.
type source struct {
	log       *slog.Logger
	informers cache.Informers
	memory    client.Reader // what the informers know
	events    record.EventRecorder
	loop      *heartbeat.Loop
	wake      trigger.Trigger

	changed broadcast.Broadcast
	mu      sync.Mutex
	nodes   map[string]node
}

// node is one that the API has.
type node struct {
	server.NodeConfiguration
	object *corev1.Node
}

func newSource(
	log *slog.Logger, informers cache.Informers, memory client.Reader, events record.EventRecorder,
	monitor *heartbeat.Monitor,
) *source {
	return &source{
		log: log, informers: informers, memory: memory, events: events, loop: monitor.Loop("node-configurations"),
		wake: trigger.New(), nodes: map[string]node{},
	}
}

// NeedLeaderElection says that every replica has it.
func (s *source) NeedLeaderElection() bool { return false }

// Start follows nodes and configurations until ctx ends.
func (s *source) Start(ctx context.Context) error {
	var known []toolscache.InformerSynced
	for _, w := range []struct {
		kind     client.Object
		relevant func(old, now any) bool
	}{
		{&corev1.Node{}, func(old, now any) bool {
			a, b := old.(*corev1.Node), now.(*corev1.Node)
			return a.UID != b.UID || !maps.Equal(a.Labels, b.Labels) ||
				!equality.Semantic.DeepEqual(a.Status.Addresses, b.Status.Addresses)
		}},
		{&v1alpha1.NodeNetworkConfig{}, func(old, now any) bool {
			a, b := old.(*v1alpha1.NodeNetworkConfig), now.(*v1alpha1.NodeNetworkConfig)
			return a.UID != b.UID || a.Generation != b.Generation || !a.DeletionTimestamp.Equal(b.DeletionTimestamp)
		}},
	} {
		informer, err := s.informers.GetInformer(ctx, w.kind)
		if err != nil {
			return fmt.Errorf("watch %T: %w", w.kind, err)
		}
		handler, err := informer.AddEventHandler(eventhandler.OnChange(s.wake.Fire, w.relevant))
		if err != nil {
			return fmt.Errorf("watch %T: %w", w.kind, err)
		}
		known = append(known, handler.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), known...) {
		return nil
	}
	s.wake.Fire() // also in a cluster without any
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
		if err := s.refresh(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// refresh computes what holds for every node, from memory.
func (s *source) refresh(ctx context.Context) error {
	defer s.loop.Step()()
	nodes, err := reconcile.All(ctx, s.memory, &corev1.NodeList{})
	if err != nil {
		return err
	}
	configs, err := reconcile.All(ctx, s.memory, &v1alpha1.NodeNetworkConfigList{})
	if err != nil {
		return err
	}
	now := compute(reconcile.Pointers(nodes.Items), reconcile.Pointers(configs.Items))
	s.mu.Lock()
	s.nodes = now
	s.mu.Unlock()
	s.changed.Send()
	return nil
}

// compute is pure.
func compute(nodes []*corev1.Node, configs []*v1alpha1.NodeNetworkConfig) map[string]node {
	choice := nodeconfig.Choose(nodes, configs)
	answers := map[string]*wire.NodeConfiguration{} // by the configuration's name
	all := make(map[string]node, len(nodes))
	for _, n := range nodes {
		answer := &wire.NodeConfiguration{}
		if c := choice.Of[n.Name]; c != nil {
			if answers[c.Name] == nil {
				answers[c.Name] = answerOf(c)
			}
			answer = answers[c.Name]
		}
		all[n.Name] = node{server.NodeConfiguration{Addresses: addressesOf(n), Answer: answer}, n}
	}
	return all
}

// answerOf is a configuration as agents get it. The API server refuses what cannot be translated;
// should there be such an object, agents refuse the empty settings, and say so.
func answerOf(c *v1alpha1.NodeNetworkConfig) *wire.NodeConfiguration {
	answer := &wire.NodeConfiguration{Name: c.Name, Uid: string(c.UID), Generation: c.Generation}
	if o, err := nodeconfig.Settings(c.Spec); err == nil {
		answer.Settings, _ = o.Encode() // maps of strings, numbers and prefixes have an encoding
	}
	return answer
}

// addressesOf are those that an agent of the node may ask from.
func addressesOf(n *corev1.Node) []netip.Addr {
	var list []netip.Addr
	for _, a := range n.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			list = append(list, addr.Unmap())
		}
	}
	return list
}

// Of implements server.Configurations.
func (s *source) Of(name string) (server.NodeConfiguration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, known := s.nodes[name]
	return n.NodeConfiguration, known
}

// Changed implements server.Configurations.
func (s *source) Changed() <-chan struct{} { return s.changed.Changed() }

// Refused implements server.Configurations.
func (s *source) Refused(name string, err error) {
	s.log.Warn("an agent's request for its configuration is refused", "node", name, "err", err)
	s.mu.Lock()
	n := s.nodes[name].object
	s.mu.Unlock()
	if n != nil {
		s.events.Event(n, corev1.EventTypeWarning, v1alpha1.ReasonAddressNotOfNode, err.Error())
	}
}
