// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Load imports image archives (docker-archive or OCI) into every node.
func (s *Sandbox) Load(ctx context.Context, archives ...string) error {
	return each(ctx, s.Nodes(), func(ctx context.Context, node string) error {
		return s.loadNode(ctx, node, archives)
	})
}

// loadChanged loads Coelan's archives into the nodes that have not loaded just these before.
func (s *Sandbox) loadChanged(ctx context.Context, archives []string) error {
	now, err := fingerprint(archives)
	if err != nil {
		return err
	}
	return each(ctx, s.Nodes(), func(ctx context.Context, node string) error {
		marker := filepath.Join(s.machineDir(node), "loaded")
		if before, err := os.ReadFile(marker); err == nil && string(before) == now {
			return nil
		}
		if err := s.loadNode(ctx, node, archives); err != nil {
			return err
		}
		return os.WriteFile(marker, []byte(now), 0o644)
	})
}

func (s *Sandbox) loadNode(ctx context.Context, node string, archives []string) error {
	if err := s.WaitComponent(ctx, node, containerd, bootTimeout); err != nil {
		return err
	}
	for _, archive := range archives {
		if err := s.loadOne(ctx, node, archive); err != nil {
			return err
		}
	}
	return nil
}

// fingerprint tells one set of files from another.
func fingerprint(files []string) (string, error) {
	hash := sha256.New()
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("image archive: %w", err)
		}
		_, err = io.Copy(hash, f)
		f.Close()
		if err != nil {
			return "", fmt.Errorf("image archive %s: %w", path, err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
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
