// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// AnnotationFakeNode, with the value FakeNode, says of a node that kwok plays it.
const (
	AnnotationFakeNode = "kwok.x-k8s.io/node"
	FakeNode           = "fake"
)

// PlayFakeNodes has kwok play the nodes that have AnnotationFakeNode, until it is called off or ctx
// ends. The caller creates the Node objects; they become Ready, and so do pods on them, with
// addresses of the node's podCIDRs. Nothing runs there and nothing can be reached. Other nodes and
// their pods are left alone.
//
// A fake node needs an InternalIP and a Hostname in its status when it is created, or it has the
// address of all others; a taint, which keeps pods away that are not for it; and no label
// kubernetes.io/os, by which DaemonSets find nodes.
func (s *Sandbox) PlayFakeNodes(ctx context.Context) (stop func(), err error) {
	program, stages, err := s.cache.Kwok(ctx)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(s.dir, "kwok.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program,
		"--kubeconfig="+s.Kubeconfig(), "--config="+stages,
		"--manage-all-nodes=false", "--manage-nodes-with-annotation-selector="+AnnotationFakeNode+"="+FakeNode,
		"--node-lease-duration-seconds=40",
	)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("kwok: %w", err)
	}
	return func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}, nil
}
