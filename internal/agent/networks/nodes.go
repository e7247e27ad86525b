// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// NodesListed reports whether intent is made of the nodes that the API has told of since the start.
func (s *Source) NodesListed() bool { return s.applied().Listed(apicache.Nodes) }

// Own is this node's object; nil if it is not known.
func (s *Source) Own() *corev1.Node { return s.applied().Nodes.Get(s.Node) }

// keepOwn keeps what was known of this node when its object has vanished or has become useless: the
// pods that run here still need their gateway. New pods are refused, see OwnProblem.
func (s *Source) keepOwn(c translate.Change[intent.Node]) translate.Change[intent.Node] {
	own := func(n intent.Node) bool { return n.Name == s.Node }
	last, ok := s.Intent.State().Nodes().Get(s.Node)
	i, gone := slices.IndexFunc(c.Set, own), slices.IndexFunc(c.Gone, own)
	if i < 0 && gone < 0 {
		return c
	}
	vanished := i < 0 || len(c.Set[i].Addresses) == 0 || len(c.Set[i].Subnets) == 0
	s.mu.Lock()
	s.vanished = ok && vanished
	s.mu.Unlock()
	switch {
	case !ok || !vanished:
		return c
	case i < 0:
		c.Gone = slices.Delete(c.Gone, gone, gone+1)
		return c
	}
	if len(c.Set[i].Addresses) == 0 {
		c.Set[i].Addresses = last.Addresses
	}
	if len(c.Set[i].Subnets) == 0 {
		c.Set[i].Subnets = last.Subnets
	}
	return c
}

// translateNodes brings the nodes to what is known, and logs once what cannot be used.
func (s *Source) translateNodes(before, known apicache.State) translate.Change[intent.Node] {
	follow(before.Nodes, known.Nodes, s.nodes.Set)
	changes, problems := s.nodes.Changes()
	if problems {
		s.report(&s.nodeProblems, s.nodes.Problems())
	}
	return changes
}

func applyNodes(tx *intent.Tx, c translate.Change[intent.Node]) {
	apply(c, tx.SetNode, func(n intent.Node) { tx.DeleteNode(n.Name) })
}

// Judge tells what is wrong with this node's own object. Call it when the nodes are intent and
// Events can be written.
func (s *Source) Judge() {
	problem := s.OwnProblem()
	if problem != nil {
		s.Warn("NodeNotUsable", problem)
	} else {
		_, problem = backend.OwnNode(s.Intent.State(), s.Node)
	}
	s.Judged(problem)
	if s.NodesListed() {
		s.checkRanges()
	}
}

// OwnProblem is what is wrong with this node's own object although it can be used.
func (s *Source) OwnProblem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.nodeProblems {
		if p.Object == "node "+s.Node {
			return p
		}
	}
	if s.vanished {
		return fmt.Errorf("node %s has vanished from the API; its pods stay connected, new ones are refused", s.Node)
	}
	return nil
}

// checkRanges tells when pods have addresses from ranges that their node no longer has: other nodes
// have lost the way.
func (s *Source) checkRanges() {
	node, ok := s.Intent.State().Nodes().Get(s.Node)
	if !ok || len(node.Subnets) == 0 {
		return
	}
	ranges := node.Prefixes()
	var strangers []string
	for _, at := range s.Store.List() {
		fromNode := at.NodeAddresses
		if !at.BlockSpace {
			fromNode = slices.Concat(fromNode, at.Addresses)
		}
		if slices.ContainsFunc(fromNode, func(p netip.Prefix) bool { return !slices.Contains(ranges, p.Masked()) }) {
			strangers = append(strangers, at.PodRef())
		}
	}
	if len(strangers) == 0 {
		return
	}
	err := fmt.Errorf("%d pods have addresses outside of the node's podCIDRs %v, which were changed: delete these pods, so"+
		" that they start anew; the first is %s", len(strangers), ranges, strangers[0])
	s.Log.Error("the Node's podCIDRs have changed while pods use the old ones", "err", err)
	s.Warn("PodCIDRChanged", err)
}
