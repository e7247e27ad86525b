// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"coelan.io/coelan/internal/agent/blockipam"
	"coelan.io/coelan/internal/agent/diagnostics"
	"coelan.io/coelan/internal/agent/egressclaims"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/agent/podplan"
	"coelan.io/coelan/internal/agent/portbinding"
	"coelan.io/coelan/internal/agent/portstatus"
	"coelan.io/coelan/internal/agent/services"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/nodeconfig"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/wire"
)

// Options are what an Agent is made of.
type Options struct {
	Config config.Config
	// Backend is what brings intent about.
	Backend Factory
	// Links makes the pods' interfaces.
	Links cni.Interfaces
	// NodeName is the name of this node's Node object.
	NodeName string
	// Cluster is where nodes and pods come from.
	Cluster Cluster
	// Events tells users what keeps their pods or nodes from working.
	Events Recorder
	// Controllers tells until ctx ends which controllers there are to hear of policies from. It may
	// be nil where these are not enforced.
	Controllers func(ctx context.Context) client.Controllers
	// Configuration is what this agent's Config follows from; nil: the ConfigMap alone.
	Configuration Configuration
	// MembershipKeys calls update with the keys of the membership that decides which node answers
	// for load balancers' addresses, once they are known and after each change, until ctx ends.
	// While it is nil, this node answers for none.
	MembershipKeys func(ctx context.Context, update func(keys [][]byte))
	// Namespace is the one that Coelan is installed in.
	Namespace string
	// Log may be nil: slog.Default.
	Log *slog.Logger
}

// Configuration follows which NodeNetworkConfig holds for the node. Its methods do not block.
// *configuration.Manager is one.
type Configuration interface {
	// Received takes what a controller says holds, Failed why none says anything.
	Received(c *wire.NodeConfiguration)
	Failed(err error)
	// Report is what the node's object is to say, and Status what the coelan command prints.
	// Changed is closed when they may be others than at the time of the call.
	Report() nodeconfig.Report
	Status() agentapi.ConfigurationStatus
	Changed() <-chan struct{}
}

// Cluster is what the agent sees of Kubernetes. kube.Client is one.
type Cluster interface {
	Watcher
	API
	// Reviews authenticate and authorize clients of the metrics.
	Reviews() (authentication.TokenReviewInterface, authorization.SubjectAccessReviewInterface)
}

// API is what the agent asks for and writes by calls of its own.
type API interface {
	podplan.API
	blockipam.API
	portstatus.API
	egressclaims.API
}

// Watcher tells of objects.
type Watcher interface {
	// WatchPods calls update with all pods that are bound to this node once they are known and
	// after each change, until ctx ends.
	WatchPods(ctx context.Context, update func(kube.Delta[*corev1.Pod])) error
	// WatchServices tells of Services, and of all that they lead to.
	WatchServices(ctx context.Context, updates kube.ServiceUpdates) error
	// WatchObjects does the same for nodes, namespaces and all that Networks are made of.
	WatchObjects(ctx context.Context, updates kube.Updates) error
}

// Recorder tells users by Events, all but notices of type Warning. Its methods do not block.
type Recorder interface {
	PodWarning(namespace, name, uid, reason, message string)
	NodeWarning(name, uid, reason, message string)
	PortWarning(namespace, name, uid, reason, message string)
	ServiceWarning(namespace, name, uid, reason, message string)
	// ObjectWarning is about an object of which the UID is not known.
	ObjectWarning(apiVersion, kind, namespace, name, reason, message string)
	ServiceNotice(namespace, name, uid, reason, message string)
}

// Factory makes a node's backend.
type Factory struct {
	// Conditions are those that the backend sets, in the order in which they come true.
	Conditions []conditions.Condition
	New        func(backend.Options) (Backend, error)
	// AllPorts says that the backend needs the Port object of every pod, those on the Network
	// default included, before it can attach it, and of a guest that the Port is bound.
	AllPorts bool
}

// Backend brings about on this node what intent says. Its methods are safe for
// concurrent use, and idempotent.
type Backend interface {
	// Open connects it, once the intent knows the node's own Ports; Run works until ctx ends, and
	// leaves everything as it is.
	Open() error
	Run(ctx context.Context) error
	Close()

	// Expect prepares for an attachment before its Port becomes intent.
	Expect(at attachment.Attachment)
	// Attach returns when the packets of an attachment pass by the intent of that revision, Detach
	// when what it had is gone.
	Attach(ctx context.Context, at attachment.Attachment, revision uint64) error
	Detach(ctx context.Context, at attachment.Attachment, revision uint64) error
	// Check says what an attachment lacks.
	Check(ctx context.Context, at attachment.Attachment) error
	// Applied returns when the intent of that revision is in effect, Forwards when it is for an
	// attachment, or with a *backend.RefusedError. Withdrawn returns when what an attachment had
	// that is not in that intent is gone, or cannot be removed now.
	Applied(ctx context.Context, revision uint64) error
	Forwards(ctx context.Context, at attachment.Attachment, revision uint64) error
	Withdrawn(ctx context.Context, at attachment.Attachment, revision uint64)

	// Admits says why this node cannot have a configuration in place of its own.
	Admits(ctx context.Context, c config.Config) error
	// Connected says why this node is not connected to one. PhysicalNetworks are those of which it
	// is known whether the node is connected.
	Connected(physical string) error
	PhysicalNetworks() map[string]bool
	// Reserves says whether the node itself needs one of its ports.
	Reserves(p intent.Protocol, port uint16) bool

	cni.ForeignBridges
	portbinding.Guests
	services.Connections
	diagnostics.Backend
}
