// SPDX-License-Identifier: Apache-2.0

package apiaccess

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// maxKubeconfig is more than any kubeconfig of one cluster has.
const maxKubeconfig = 1 << 20

// kubeletServer is the address, HOST:PORT, in the first of the kubeconfigs that is there and can be
// used; empty if none is. They are read each time: kubelet's may be written after the agent has
// started.
func (a *Access) kubeletServer() string {
	for _, path := range a.Kubeconfigs {
		server, err := readServer(path)
		switch {
		case err == nil:
			return server
		case errors.Is(err, fs.ErrNotExist):
		default:
			a.Log.Warn("cannot take an API server's address from a kubeconfig of kubelet", "err", err)
		}
	}
	return ""
}

func readServer(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKubeconfig))
	if err != nil {
		return "", err
	}
	server, err := parseServer(data)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return server, nil
}

// parseServer is the address of the current context's server.
func parseServer(data []byte) (string, error) {
	config, err := clientcmd.Load(data)
	if err != nil {
		return "", fmt.Errorf("is no kubeconfig: %w", err)
	}
	cluster, err := currentCluster(config)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(cluster.Server)
	if err != nil {
		return "", fmt.Errorf("the server cannot be read: %w", err)
	}
	switch {
	case u.Scheme != "https" || u.Hostname() == "":
		return "", fmt.Errorf("the server is %q, not https://HOST:PORT", cluster.Server)
	case u.Path != "" && u.Path != "/":
		return "", fmt.Errorf("the server is %q: a path cannot be dialed", cluster.Server)
	case !validAddress(hostPort(u)):
		return "", fmt.Errorf("the server is %q, which is no address", cluster.Server)
	}
	return hostPort(u), nil
}

// currentCluster is that of the current context, or the only one.
func currentCluster(c *clientcmdapi.Config) (*clientcmdapi.Cluster, error) {
	if context := c.Contexts[c.CurrentContext]; context != nil {
		if cluster := c.Clusters[context.Cluster]; cluster != nil {
			return cluster, nil
		}
		return nil, fmt.Errorf("has no cluster %q, which its context %q names",
			context.Cluster, c.CurrentContext)
	}
	if len(c.Clusters) != 1 {
		return nil, fmt.Errorf("has %d clusters and no current context", len(c.Clusters))
	}
	for _, cluster := range c.Clusters {
		return cluster, nil
	}
	return nil, errors.New("has no cluster")
}
