// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"

	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/ipam"
)

// status says whether ADD could succeed now.
func (s *Server) status(ctx context.Context) error {
	node, err := s.opts.Node.Node()
	if err == nil {
		_, err = ipam.Parse(node.PodCIDRs)
	}
	err = errors.Join(err, s.opts.Dataplane.Ready(ctx))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLimited):
		return newError(wire.CodeLimited, "pods cannot be attached now", err.Error())
	default:
		return newError(wire.CodeNotAvailable, "pods cannot be attached now", err.Error())
	}
}
