// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/cni/wire"
)

// undoTimeout bounds the cleaning up after a call that failed, which also runs when the
// call's own time is over.
const undoTimeout = 10 * time.Second

// add attaches a pod's interface, and with the pod's first one all others that Coelan makes. For
// what is attached already it repairs what is missing and returns the same result.
func (s *Server) add(ctx context.Context, c call) ([]byte, error) {
	unlock, err := s.lock(ctx, c.ContainerID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("the runtime gave up before its turn came: %w", err)
	}
	if err := s.opts.Interfaces.Verify(c.netns); err != nil {
		return nil, err
	}
	node, err := s.node()
	if err == nil {
		err = c.expects.fits(node)
	}
	if err != nil {
		return nil, err
	}
	g := s.group(c.Key)
	if len(g) > 0 {
		same, err := s.sameContainer(ctx, g, c, s.detach)
		if err != nil {
			return nil, err
		}
		if !same {
			g = nil
		}
	}
	switch {
	case len(g) == 0 && c.conf.Foreign != nil:
		return s.addForeign(ctx, c, node)
	case len(g) > 0:
		if err = c.given.matches(g[0]); err == nil {
			err = c.met(g[0])
		}
		if err == nil {
			err = s.repair(ctx, g, node)
		}
	case c.conf.IPAM.Delegated() && c.given == nil:
		err = errAddresses
	default:
		g, err = s.attach(ctx, c, node)
	}
	if err != nil {
		return nil, err
	}
	return encodeResult(resultOf(g, c.conf), c.conf.CNIVersion)
}

func (s *Server) node() (Node, error) {
	node, err := s.opts.Node.Node()
	if err != nil {
		return Node{}, newError(wire.CodeTryAgainLater, "the node is not ready for pods", err.Error())
	}
	return node, nil
}

// sameContainer says whether attachments are those of the call. If their network namespace
// is gone although the container is added anew, they are removed; so are those that a DEL
// has left half done.
func (s *Server) sameContainer(ctx context.Context, g group, c call,
	detach func(context.Context, group) error,
) (bool, error) {
	a := g[0]
	if a.PodUID != c.PodUID {
		return false, newError(wire.CodeInvalidEnvironment, fmt.Sprintf("K8S_POD_UID %q in CNI_ARGS", c.PodUID),
			fmt.Sprintf("container %s is attached for pod %s with UID %s", a.Key, a.PodRef(), a.PodUID))
	}
	if a.Netns == c.netns && a.Key == c.Key {
		if c.Network != "" && c.Network != a.NetworkName {
			return false, newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_IFNAME %q", c.IfName),
				fmt.Sprintf("the pod has this interface on Network %s already, not on %s", a.NetworkName, c.Network))
		}
		return true, nil
	}
	if a.Netns != c.netns && !s.opts.Interfaces.Gone(a.Netns) {
		return false, newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_NETNS %q", c.netns),
			fmt.Sprintf("container %s is attached in %s", a.Key, a.Netns))
	}
	return false, detach(ctx, g)
}

// attach makes attachments from nothing. If a step fails, those before it are undone.
func (s *Server) attach(ctx context.Context, c call, node Node) (_ group, err error) {
	start, recorded := time.Now(), false
	defer func() {
		if err != nil && !recorded {
			s.withdraw(ctx, c)
		}
	}()
	plans, err := s.plan(ctx, c, node)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.releaseAll(ctx, plans)
		}
	}()
	if err := s.complete(ctx, c, node, plans); err != nil {
		return nil, err
	}
	if why := c.expects.unmet(ofPlan(&plans[0])); why != "" {
		return nil, planned{&plans[0]}.refused(v1alpha1.ReasonInvalid, "%s", why)
	}
	g, err := s.allocate(ctx, plans)
	if err != nil {
		return nil, err
	}
	recorded = true
	var undo undoList
	defer func() { err = undo.after(ctx, err) }()
	undo.add(func(context.Context) error { _, err := s.opts.Store.Release(group(g).keys()...); return err })

	for _, a := range g {
		if a.FixedAddresses || a.FixedMAC {
			undo.add(func(ctx context.Context) error { s.unclaim(ctx, a); return nil })
		}
		if err := s.claim(ctx, a); err != nil {
			return nil, err
		}
	}
	for _, a := range g {
		if err := s.opts.Interfaces.Create(node.Interface(a)); err != nil {
			return nil, err
		}
		undo.add(func(context.Context) error { return s.opts.Interfaces.Remove(a.HostInterface) })
	}
	for _, a := range g {
		undo.add(func(ctx context.Context) error { return s.opts.Dataplane.Detach(ctx, a) })
	}
	if err := s.connectAll(ctx, g, node); err != nil {
		return nil, err
	}
	for _, a := range g {
		s.log.Info("pod attached",
			"pod", a.PodRef(), "container", a.ContainerID, "network", a.NetworkName, "addresses", a.Addresses,
			"host interface", a.HostInterface, "ofport", a.OFPort, "took", time.Since(start))
	}
	s.changed(g)
	return g, nil
}

// claim makes sure that what was asked for is this attachment's alone.
func (s *Server) claim(ctx context.Context, a attachment.Attachment) error {
	if !a.FixedAddresses && !a.FixedMAC {
		return nil
	}
	return s.opts.Planner.Claim(ctx, a)
}

func (s *Server) unclaim(ctx context.Context, a attachment.Attachment) {
	if !a.FixedAddresses && !a.FixedMAC {
		return
	}
	if err := s.opts.Planner.Unclaim(ctx, a); err != nil {
		s.log.Warn("cannot release a pod's fixed address, retrying",
			"pod", a.PodRef(), "addresses", a.Addresses, "err", err)
	}
}

// withdraw undoes what the Planner has asked for in the name of an interface that has no attachment
// yet: the port that CNI_ARGS name.
func (s *Server) withdraw(ctx context.Context, c call) {
	if c.NeutronPort == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	s.unclaim(ctx, attachment.Attachment{FixedAddresses: true, Spec: attachment.Spec{
		Key: c.Key, PodUID: c.PodUID, PodNamespace: c.PodNamespace, PodName: c.PodName, BlockSpace: true,
		PortName: attachment.PortName(c.PodName, c.IfName), NeutronPort: c.NeutronPort,
	}})
}

// changed tells that attachments have come or gone.
func (s *Server) changed(g group) {
	if s.opts.Changed != nil {
		s.opts.Changed(g)
	}
}

// connectAll connects interfaces at the same time.
func (s *Server) connectAll(ctx context.Context, g group, node Node) error {
	if len(g) == 1 {
		return s.connect(ctx, g[0], node.Interface(g[0]))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, len(g))
	for _, a := range g {
		go func() { results <- s.connect(ctx, a, node.Interface(a)) }()
	}
	var first error
	for range g {
		if err := <-results; err != nil && first == nil {
			first = err
			cancel() // what the others say after that is no news
		}
	}
	return first
}

// connect does at the same time what is done in the pod and what on the bridge. It
// returns when both have ended.
func (s *Server) connect(ctx context.Context, a attachment.Attachment, i podnet.Interface) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	attached := make(chan error, 1)
	go func() { attached <- s.opts.Dataplane.Attach(ctx, a) }()
	err := s.opts.Interfaces.Configure(i)
	if err != nil {
		cancel()
	}
	return errors.Join(err, <-attached)
}

// repair makes everything of attachments that is missing. It undoes nothing: what was
// there before stays.
func (s *Server) repair(ctx context.Context, g group, node Node) error {
	for _, a := range g {
		if err := s.claim(ctx, a); err != nil {
			return err
		}
		i := node.Interface(a)
		problem := s.opts.Interfaces.Check(i)
		if problem == nil {
			continue
		}
		s.log.Warn("repairing a pod's interface", "pod", a.PodRef(), "container", a.ContainerID, "problem", problem)
		if missing := new(podnet.MissingError); errors.As(problem, &missing) {
			if err := s.opts.Interfaces.Create(i); err != nil {
				return err
			}
		}
	}
	return s.connectAll(ctx, g, node)
}

// Interface is what an attachment's interface should be on this node.
func (n Node) Interface(a attachment.Attachment) podnet.Interface {
	return podnet.Interface{Attachment: a, TXOffload: n.TXOffload}
}

// undoList is what undoes the steps that a call has made.
type undoList []func(context.Context) error

func (u *undoList) add(step func(context.Context) error) { *u = append(*u, step) }

// after undoes the steps, last first, if err says that the call failed. When a step
// cannot be undone, those before it are left too: the attachment stays recorded, and DEL
// or the reconciliation cleans up.
func (u *undoList) after(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	for i := len(*u) - 1; i >= 0; i-- {
		if undoErr := (*u)[i](ctx); undoErr != nil {
			return fmt.Errorf("%w; cleaning up is left to DEL: %w", err, undoErr)
		}
	}
	return err
}
