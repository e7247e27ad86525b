// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"time"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// Report is what Reconcile did.
type Report struct {
	Released []attachment.Attachment // their containers are gone
	Repaired []attachment.Attachment // a part of their interface was missing
	Removed  []string                // host interfaces of no attachment
}

// Reconcile makes attachments and the kernel's interfaces agree, after a restart of the
// agent or of the node, or whenever it is called:
//   - An attachment is released if both its network namespace and its host interface are gone. One
//     sign is not enough: a namespace that the agent cannot see, because a mount is missing in its
//     container, may be alive.
//   - An attachment is repaired if its namespace exists: the agent may have died in the middle of
//     ADD. If that ADD failed for the runtime, it will send a DEL.
//   - A host interface of no attachment is removed.
//
// Attachments on bridges of external controllers are released in the same way, and not repaired: an
// ADD that the agent's end has interrupted has made no port there.
//
// It goes on after an error. Calls of the runtime can go on at the same time.
func (s *Server) Reconcile(ctx context.Context) (Report, error) {
	var report Report
	links, err := s.opts.Interfaces.Existing()
	if err != nil {
		return report, err
	}
	var errs []error
	for _, a := range s.opts.Store.List() {
		if a.IsPort() || links[a.HostInterface] && !s.opts.Interfaces.Gone(a.Netns) {
			continue // the usual case, without a closer look; or another program's interface
		}
		err := s.ifStill(ctx, a, func(ctx context.Context, a attachment.Attachment) error {
			return s.reconcileOne(ctx, a, &report)
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s (container %s): %w", a.PodRef(), a.ContainerID, err))
		}
	}
	foreign, err := s.reconcileForeign(ctx, links, &report)
	if err != nil {
		errs = append(errs, err)
	}
	used := s.hostInterfaces()
	for name := range links {
		if used[name] || foreign == nil || foreign[name] {
			continue // of a pod, or it is not known whether it is
		}
		if err := s.opts.Interfaces.Remove(name); err != nil {
			errs = append(errs, err)
			continue
		}
		s.log.Warn("removed a host interface that belongs to no pod", "interface", name)
		report.Removed = append(report.Removed, name)
	}
	return report, errors.Join(errs...)
}

// The pause between attempts to reconcile.
const (
	minReconcileBackoff = 200 * time.Millisecond
	maxReconcileBackoff = 30 * time.Second
)

// KeepReconciled reconciles at once, after each wake and after an error, until ctx ends. It calls
// report with what each comparison has changed.
func (s *Server) KeepReconciled(ctx context.Context, wake trigger.Trigger, report func(Report)) {
	backoff := retry.New(minReconcileBackoff, maxReconcileBackoff)
	for {
		changed, err := s.Reconcile(ctx)
		report(changed)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("cannot reconcile attachments with pods' interfaces, retrying", "err", err)
		}
		again := backoff.After(err)
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-again:
		}
	}
}

func (s *Server) reconcileOne(ctx context.Context, a attachment.Attachment, report *Report) error {
	links, err := s.opts.Interfaces.Existing()
	if err != nil {
		return err
	}
	switch gone, linked := s.opts.Interfaces.Gone(a.Netns), links[a.HostInterface]; {
	case gone && linked:
		return fmt.Errorf("network namespace %s cannot be seen, but the pod's interface is alive: "+
			"is its directory mounted into the agent's container with HostToContainer propagation?", a.Netns)
	case gone:
		report.Released = append(report.Released, a)
		return s.detach(ctx, group{a})
	case linked:
		return nil
	}
	node, err := s.node()
	if err != nil {
		return err
	}
	report.Repaired = append(report.Repaired, a)
	return s.repair(ctx, group{a}, node)
}

// hostInterfaces are those of all attachments. One that an ADD is making now was recorded
// before its interface was made.
func (s *Server) hostInterfaces() map[string]bool {
	used := map[string]bool{}
	for _, a := range s.opts.Store.List() {
		used[a.HostInterface] = true
	}
	return used
}
