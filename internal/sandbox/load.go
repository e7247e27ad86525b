// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Load imports image archives (docker-archive or OCI) into every node.
func (s *Sandbox) Load(ctx context.Context, archives ...string) error {
	var errs []error
	for _, a := range archives {
		if _, err := os.Stat(a); err != nil {
			errs = append(errs, fmt.Errorf("image archive: %w", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return each(ctx, s.Nodes(), func(ctx context.Context, node string) error {
		if err := s.WaitComponent(ctx, node, containerd, bootTimeout); err != nil {
			return err
		}
		for _, archive := range archives {
			if err := s.loadOne(ctx, node, archive); err != nil {
				return err
			}
		}
		return nil
	})
}

// loadOne hands the archive over as standard input: the node may not see its path.
func (s *Sandbox) loadOne(ctx context.Context, node, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd, err := s.Command(ctx, node, "ctr", "-n", "k8s.io", "images", "import", "-")
	if err != nil {
		return err
	}
	cmd.Stdin = f
	_, err = output(cmd, "import "+archive)
	return err
}
