// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"coelan.io/coelan/internal/sandbox/artifact"
	"coelan.io/coelan/test/lab"
)

// kubeProxyConfig leaves alone what the whole machine shares: the sizes and timeouts of the
// connection tracking table.
const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
hostnameOverride: %s
clientConnection: {kubeconfig: %q, contentType: application/json, acceptContentTypes: application/json}
clusterCIDR: "10.244.0.0/16,fd00:10:244::/48"
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// startKubeProxy starts Kubernetes' kube-proxy on a node, in one of its modes. It
// ends with the node.
func startKubeProxy(n *lab.Node, mode string) error {
	cache := artifact.Cache{Dir: artifact.DefaultDir(), Source: artifact.FindSource()}
	binary := cache.Binary("kube-proxy")
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("%w: `make sandbox-assets` builds it", err)
	}
	config := filepath.Join(n.Dir(), "kube-proxy.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, kubeProxyConfig, mode, n.Name, n.Config().Kubeconfig),
		0o644); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(n.Dir(), "kube-proxy.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(binary, "--config="+config)
	cmd.Stdout, cmd.Stderr = log, log
	if err := n.Start(cmd); err != nil {
		return fmt.Errorf("start kube-proxy: %w", err)
	}
	go func() { _ = cmd.Wait() }() // killed with the node
	return nil
}
