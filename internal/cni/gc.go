// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/netconf"
	"coelan.io/coelan/internal/cni/wire"
)

// gc detaches what the runtime does not list as valid, of the configuration's network
// only. It goes on after an error.
func (s *Server) gc(ctx context.Context, c call) error {
	valid, err := validAttachments(c.conf)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range s.opts.Store.List() {
		if a.ConfName != c.conf.Name || valid[maker(a)] { // a user's Port has no such name
			continue
		}
		err := s.ifStill(ctx, a, func(ctx context.Context, a attachment.Attachment) error {
			return s.detach(ctx, group{a})
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("container %s: %w", a.Key, err))
		}
	}
	return errors.Join(append(errs, s.gcForeign(ctx, c, valid))...)
}

// validAttachments are those that the runtime lists. An empty list says that nothing is valid; a
// missing list does not.
func validAttachments(conf netconf.Config) (map[attachment.Key]bool, error) {
	if !conf.ValidGiven {
		return nil, newError(wire.CodeInvalidConfig,
			"network configuration lacks the key cni.dev/valid-attachments, which GC needs", "")
	}
	valid := map[attachment.Key]bool{}
	for _, a := range conf.ValidAttachments {
		valid[attachment.Key{ContainerID: a.ContainerID, IfName: a.IfName}] = true
	}
	return valid, nil
}

// ifStill calls fn with the container locked, unless the attachment was released before
// the lock was had.
func (s *Server) ifStill(ctx context.Context, a attachment.Attachment,
	fn func(context.Context, attachment.Attachment) error,
) error {
	unlock, err := s.lock(ctx, a.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	now, exists := s.opts.Store.Get(a.Key)
	if !exists {
		return nil
	}
	return fn(ctx, now)
}
