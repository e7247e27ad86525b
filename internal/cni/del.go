// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"fmt"
	"time"
)

// del detaches a pod's interface, and those that were made with it. One that is not attached, or is
// attached for another pod, is none of its business, and no error.
func (s *Server) del(ctx context.Context, c call) error {
	unlock, err := s.lock(ctx, c.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	g := s.group(c.Key)
	if len(g) == 0 {
		return s.delForeign(ctx, c)
	}
	a := g[0]
	if c.PodUID != "" && c.PodUID != a.PodUID {
		s.log.Warn("ignored a DEL whose pod UID is not the attachment's",
			"container", a.ContainerID, "pod", a.PodRef(), "uid", a.PodUID, "asked", c.PodUID)
		return nil
	}
	return s.detach(ctx, g)
}

// detach undoes attachments. The addresses are free only when nothing else is left, so
// that it can be repeated after any failure. It goes on when the caller is gone.
func (s *Server) detach(ctx context.Context, g group) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Timeout)
	defer cancel()
	for _, a := range g {
		if err := s.opts.Dataplane.Detach(ctx, a); err != nil {
			return err
		}
		if err := s.opts.Interfaces.Remove(a.HostInterface); err != nil {
			return err
		}
		s.unclaim(ctx, a)
		if a.Leased {
			s.opts.Leases.Release(ctx, a.Key)
		}
	}
	if _, err := s.opts.Store.Release(g.keys()...); err != nil {
		return fmt.Errorf("release the addresses of %s: %w", g[0].PodRef(), err)
	}
	for _, a := range g {
		s.log.Info("pod detached", "pod", a.PodRef(), "container", a.ContainerID, "addresses", a.Addresses, "took",
			time.Since(start))
	}
	s.changed(g)
	return nil
}
