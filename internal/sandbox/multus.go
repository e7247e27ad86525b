// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"coelan.io/coelan/internal/sandbox/artifact"
)

// Multus is a form in which Multus runs.
type Multus string

// The forms: a plugin that does everything itself, and one that hands its calls to a daemon.
const (
	MultusThin  Multus = "thin"
	MultusThick Multus = "thick"
)

// multusConfigs match the one file that Multus writes on every node, before all
// others in their order.
const (
	multusConfigs   = "/etc/cni/net.d/00-multus.conf*"
	multusNamespace = "kube-system"
	multusName      = "kube-multus-ds"
	multusTimeout   = time.Minute
)

// DefineAttachments makes NetworkAttachmentDefinitions known to the cluster, as
// upstream of them does.
func (s *Sandbox) DefineAttachments(ctx context.Context) error {
	if err := s.cache.Prepare(ctx, artifact.Definitions); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "apply", "-f", s.cache.AttachmentDefinition()); err != nil {
		return err
	}
	return s.waitEstablished(ctx, "network-attachment-definitions.k8s.cni.cncf.io")
}

// InstallMultus runs Multus on every node from upstream's manifest. Its plugin takes the place of
// the one that each node's runtime uses now, and calls that one for pods' first interfaces.
func (s *Sandbox) InstallMultus(ctx context.Context, form Multus) error {
	if err := s.cache.Prepare(ctx, artifact.Multus); err != nil {
		return err
	}
	if err := s.Load(ctx, s.cache.MultusArchive()); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "apply", "-f", s.cache.MultusManifest(string(form))); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, multusTimeout)
	defer cancel()
	if err := s.waitDaemonSet(ctx, multusNamespace, multusName); err != nil {
		return err
	}
	return each(ctx, s.Nodes(), func(ctx context.Context, node string) error {
		return s.waitFile(ctx, node, multusConfigs)
	})
}

// RemoveMultus undoes InstallMultus, but for the definition of NetworkAttachmentDefinitions, which
// goes with all of them if it is deleted.
func (s *Sandbox) RemoveMultus(ctx context.Context) error {
	for _, object := range []string{
		"daemonset/" + multusName, "serviceaccount/multus", "configmap/multus-cni-config",
		"configmap/multus-daemon-config",
		"clusterrole/multus", "clusterrolebinding/multus",
	} {
		_, err := s.Kubectl(ctx, "-n", multusNamespace, "delete", object, "--ignore-not-found", "--cascade=foreground",
			"--timeout=60s")
		if err != nil {
			return err
		}
	}
	return each(ctx, s.Nodes(), func(ctx context.Context, node string) error {
		_, err := s.Exec(ctx, node, "sh", "-c", "rm -rf /etc/cni/net.d/multus.d "+multusConfigs)
		return err
	})
}

// waitFile returns when a node has a file that matches the pattern. Changes inside its mount
// namespace cannot be watched from outside, so it is polled.
func (s *Sandbox) waitFile(ctx context.Context, node, pattern string) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	ticker := time.NewTicker(again)
	defer ticker.Stop()
	for {
		files, err := filepath.Glob(filepath.Join(s.machineDir(node), pattern))
		if err != nil || len(files) > 0 {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s does not appear: %w", pattern, ctx.Err())
		}
	}
}
