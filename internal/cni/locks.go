// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"fmt"
)

// lock waits until no other call for the container runs.
func (s *Server) lock(ctx context.Context, container string) (unlock func(), err error) {
	unlock, err = s.locks.Lock(ctx, container)
	if err != nil {
		return nil, fmt.Errorf("another call for container %s is still running: %w", container, err)
	}
	return unlock, nil
}
