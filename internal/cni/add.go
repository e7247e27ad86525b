// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"time"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/ipam"
)

// undoTimeout bounds the cleaning up after a call that failed, which also runs when the
// call's own time is over.
const undoTimeout = 10 * time.Second

// add attaches a pod's interface. For one that is attached already it repairs what is
// missing and returns the same result.
func (s *Server) add(ctx context.Context, c call) ([]byte, error) {
	unlock, err := s.locks.lock(ctx, c.key.ContainerID)
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
	if err != nil {
		return nil, err
	}
	a, exists := s.opts.Store.Get(c.key)
	if exists {
		if exists, err = s.sameContainer(ctx, a, c); err != nil {
			return nil, err
		}
	}
	if exists {
		err = s.repair(ctx, a, node)
	} else {
		a, err = s.attach(ctx, c, node)
	}
	if err != nil {
		return nil, err
	}
	return encodeResult(resultOf(a, c.conf), c.conf.CNIVersion)
}

func (s *Server) node() (Node, error) {
	node, err := s.opts.Node.Node()
	if err != nil {
		return Node{}, newError(wire.CodeTryAgainLater, "the node is not ready for pods", err.Error())
	}
	return node, nil
}

// sameContainer says whether an attachment is that of the call. An attachment whose
// namespace is gone, although its container is added anew, is removed.
func (s *Server) sameContainer(ctx context.Context, a attachment.Attachment, c call) (bool, error) {
	if a.PodUID != c.pod.uid {
		return false, newError(wire.CodeInvalidEnvironment, fmt.Sprintf("K8S_POD_UID %q in CNI_ARGS", c.pod.uid),
			fmt.Sprintf("container %s is attached for pod %s with UID %s", a.Key, a.PodRef(), a.PodUID))
	}
	if a.Netns == c.netns {
		return true, nil
	}
	if !s.opts.Interfaces.Gone(a.Netns) {
		return false, newError(wire.CodeInvalidEnvironment, fmt.Sprintf("CNI_NETNS %q", c.netns),
			fmt.Sprintf("container %s is attached in %s", a.Key, a.Netns))
	}
	return false, s.detach(ctx, a)
}

// attach makes an attachment from nothing. If a step fails, those before it are undone.
func (s *Server) attach(ctx context.Context, c call, node Node) (_ attachment.Attachment, err error) {
	ranges, err := ipam.Parse(node.PodCIDRs)
	if err != nil {
		return attachment.Attachment{}, err
	}
	start := time.Now()
	a, err := s.opts.Store.Allocate(attachment.Request{
		Key: c.key, Network: c.conf.Name,
		PodUID: c.pod.uid, PodNamespace: c.pod.namespace, PodName: c.pod.name, Netns: c.netns,
		NetworkID: node.NetworkID, MTU: node.MTU, Ranges: ranges,
	})
	if err != nil {
		return attachment.Attachment{}, err
	}
	var undo undoList
	defer func() { err = undo.after(ctx, err) }()
	undo.add(func(context.Context) error { _, err := s.opts.Store.Release(a.Key); return err })

	i := node.Interface(a)
	if err := s.opts.Interfaces.Create(i); err != nil {
		return attachment.Attachment{}, err
	}
	undo.add(func(context.Context) error { return s.opts.Interfaces.Remove(a.HostInterface) })
	undo.add(func(ctx context.Context) error { return s.opts.Dataplane.Detach(ctx, a) })
	if err := s.connect(ctx, a, i); err != nil {
		return attachment.Attachment{}, err
	}
	s.log.Info("pod attached", "pod", a.PodRef(), "container", a.ContainerID, "addresses", a.Addresses,
		"host interface", a.HostInterface, "ofport", a.OFPort, "took", time.Since(start))
	return a, nil
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

// repair makes everything of an attachment that is missing. It undoes nothing: what was
// there before stays.
func (s *Server) repair(ctx context.Context, a attachment.Attachment, node Node) error {
	i := node.Interface(a)
	if problem := s.opts.Interfaces.Check(i); problem != nil {
		s.log.Warn("repairing a pod's interface", "pod", a.PodRef(), "container", a.ContainerID, "problem", problem)
		if missing := new(podnet.MissingError); errors.As(problem, &missing) {
			if err := s.opts.Interfaces.Create(i); err != nil {
				return err
			}
		}
	}
	return s.connect(ctx, a, i)
}

// Interface is what an attachment's interface should be on this node.
func (n Node) Interface(a attachment.Attachment) podnet.Interface {
	return podnet.Interface{
		Netns: a.Netns, Name: a.IfName, HostName: a.HostInterface, MAC: a.MAC,
		Addresses: a.Addresses, Gateways: a.Gateways, MTU: a.MTU, TXOffload: n.TXOffload,
	}
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
