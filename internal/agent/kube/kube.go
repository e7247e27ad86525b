// SPDX-License-Identifier: Apache-2.0

// Package kube is the agent's side of the Kubernetes API: what it watches, the few objects
// that it writes, and Events. The API server may be away at any time; what was seen last stays
// until it is back.
package kube

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apiaccess"
)

// Client watches one API server for one node.
type Client struct {
	log  *slog.Logger
	api  kubernetes.Interface
	node string
	// unreachable is closed when no API server could be reached; nil: that is not known.
	unreachable <-chan struct{}

	// coelan and definitions are the groups coelan.io and k8s.cni.cncf.io.
	coelan, definitions rest.Interface
}

// New makes a client that knows Kubernetes' own objects only; api may be a fake.
func New(log *slog.Logger, api kubernetes.Interface, node string) *Client {
	return &Client{log: log, api: api, node: node}
}

// Connect makes a client from a kubeconfig file, or from the pod's service account if path is
// empty. It does not wait for the API server, which access dials.
func Connect(log *slog.Logger, path, node string, access *apiaccess.Access) (*Client, error) {
	config, err := restConfig(path)
	if err != nil {
		return nil, err
	}
	if err := access.Configure(config); err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	c, err := connect(log, config, node)
	if err != nil {
		return nil, err
	}
	c.unreachable = access.Unreachable()
	return c, nil
}

// FollowAPIServers keeps access informed of where the API servers are, until ctx ends.
func (c *Client) FollowAPIServers(ctx context.Context, access *apiaccess.Access) error {
	return access.Follow(ctx, c.api)
}

// Kubernetes is the client of Kubernetes' own objects, for packages that watch one
// thing of their own.
func (c *Client) Kubernetes() kubernetes.Interface { return c.api }

// Reviews authenticate and authorize clients.
func (c *Client) Reviews() (authentication.TokenReviewInterface, authorization.SubjectAccessReviewInterface) {
	return c.api.AuthenticationV1().TokenReviews(), c.api.AuthorizationV1().SubjectAccessReviews()
}

// Pods that start come in bursts, and each on a Network of its own is written to the API.
const (
	maxRequestsPerSecond = 50
	maxBurst             = 100
)

func connect(log *slog.Logger, config *rest.Config, node string) (*Client, error) {
	config.UserAgent = "coelan-agent"
	config.QPS, config.Burst = maxRequestsPerSecond, maxBurst
	custom := rest.CopyConfig(config)
	// Lists of nodes are large; what is written, Events, is not.
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeJSON
	// Watches last; calls are bounded by their contexts.
	config.Timeout = 0
	// One for all: with a dialer of one's own, each client would have connections of its own.
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	api, err := kubernetes.NewForConfigAndClient(config, shared)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	c := New(log, api, node)
	if c.coelan, err = customClient(custom, shared, v1alpha1.GroupVersion); err != nil {
		return nil, err
	}
	c.definitions, err = customClient(custom, shared, definitionVersion)
	return c, err
}

func restConfig(path string) (*rest.Config, error) {
	if path == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("kubeconfig: not set, and %w", err)
		}
		return config, nil
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}
