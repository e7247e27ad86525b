// SPDX-License-Identifier: Apache-2.0

package portstatus

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

// API is where Ports and pods are. Its errors are those of package apierrors.
type API interface {
	Port(ctx context.Context, namespace, name string) (*v1alpha1.Port, error)
	// NodePorts lists the Ports that this agent has made.
	NodePorts(ctx context.Context) ([]*v1alpha1.Port, error)
	// WatchNodePorts tells of them until ctx ends.
	WatchNodePorts(ctx context.Context, update func(kube.Delta[*v1alpha1.Port])) error
	CreatePort(ctx context.Context, p *v1alpha1.Port) (*v1alpha1.Port, error)
	// DeletePort succeeds if the Port of that UID is gone.
	DeletePort(ctx context.Context, namespace, name string, uid types.UID) error
	PatchPortStatus(ctx context.Context, namespace, name string, status any) error
	// AnnotatePod succeeds if the pod of that UID is gone.
	AnnotatePod(ctx context.Context, namespace, name string, uid types.UID, annotations map[string]string) error
	AnnotateNode(ctx context.Context, name string, annotations map[string]string) error
}

// Singles are the fixed addresses that this node has claimed.
type Singles interface {
	Singles() []*v1alpha1.AddressBlock
	UnclaimSingle(ctx context.Context, network string, addr netip.Addr, port string) error
}

// Options are what a Publisher works with. All are needed.
type Options struct {
	Log     *slog.Logger
	Node    string
	API     API
	View    *apicache.View
	Store   *attachment.Store
	Singles Singles
	// All has Ports of pods on the Network default in the API, too, and puts back those of all pods
	// that others delete or change: policies reach a pod by its Port.
	All bool
	// Annotations are what a pod is told of its attachments, which are all of
	// one container; nil: nothing.
	Annotations func(pod *corev1.Pod, attachments []attachment.Attachment) map[string]string
}

// Publisher is safe for concurrent use.
type Publisher struct {
	Options
	queue workqueue.TypedRateLimitingInterface[item]

	mu sync.Mutex
	// removed are attachments that are being detached: still in the store, perhaps.
	removed map[attachment.Key]attachment.Attachment
	// asking are Ports, by namespace/name, that Ask has made: no attachment has them yet.
	asking map[string]bool
	// untold are containers of pods that the API had not shown when their annotations
	// were to be written.
	untold map[string]bool
	// ofNode are annotations that the node's object is to have.
	ofNode map[string]string
}

// item is one thing to bring up to date: a Port by namespace/name, the annotations of a container's
// pod, or the node's.
type item struct {
	port, container string
	node            bool
}

// The pauses between attempts.
const (
	minRetry = 200 * time.Millisecond
	maxRetry = 30 * time.Second
	workers  = 4
	// itemTimeout bounds one attempt.
	itemTimeout = 20 * time.Second
)

// New makes a Publisher that does nothing before Run, but for Write.
func New(o Options) *Publisher {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[item](minRetry, maxRetry)
	return &Publisher{
		Options: o, queue: workqueue.NewTypedRateLimitingQueue(limiter),
		removed: map[attachment.Key]attachment.Attachment{},
		asking:  map[string]bool{}, untold: map[string]bool{}, ofNode: map[string]string{},
	}
}

// PodsChanged says that the View has other pods than before. It does not block.
func (p *Publisher) PodsChanged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for container := range p.untold {
		p.queue.Add(item{container: container})
	}
	clear(p.untold)
}

// NodeMTU has the node's object say the MTU of its pods. It does not block.
func (p *Publisher) NodeMTU(mtu int) { p.setOfNode(v1alpha1.AnnotationMTU, strconv.Itoa(mtu)) }

// NodePhysicalNetworks has the node's object say which physical networks it is connected to, by the
// value of the annotation. It does not block.
func (p *Publisher) NodePhysicalNetworks(value string) {
	p.setOfNode(v1alpha1.AnnotationPhysicalNetworks, value)
}

// NodeConfiguration has the node's object say which NodeNetworkConfig it runs with, by the value of
// the annotation. It does not block.
func (p *Publisher) NodeConfiguration(value string) {
	p.setOfNode(v1alpha1.AnnotationNetworkConfig, value)
}

func (p *Publisher) setOfNode(annotation, value string) {
	p.mu.Lock()
	p.ofNode[annotation] = value
	p.mu.Unlock()
	p.queue.Add(item{node: true})
}

// Changed says that attachments have come or gone. It does not block.
func (p *Publisher) Changed(list ...attachment.Attachment) {
	for _, at := range list {
		if at.IsPort() {
			continue
		}
		if p.hasPort(at) {
			p.queue.Add(item{port: at.PortKey()})
		}
		p.queue.Add(item{container: at.ContainerID})
	}
}

// Remove says that an attachment is being detached, also if it is still in the store.
// It does not block.
func (p *Publisher) Remove(at attachment.Attachment) {
	p.mu.Lock()
	p.removed[at.Key] = at
	delete(p.asking, at.PortKey())
	p.mu.Unlock()
	p.queue.Add(item{port: at.PortKey()})
}

// hasPort says whether an attachment has a Port object. Those on the default Network are too many
// to be of use, unless All is set.
func (p *Publisher) hasPort(at attachment.Attachment) bool {
	if at.IsPort() || at.NetworkName == "" || at.PortName == "" {
		return false
	}
	return p.All || at.NetworkName != intent.DefaultNetworkName
}

// Run works until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for p.next(ctx) {
			}
		})
	}
	running.Go(func() { p.resync(ctx) })
	var err error
	if p.All {
		err = p.API.WatchNodePorts(ctx, p.seen)
	} else {
		<-ctx.Done()
	}
	cancel()
	p.queue.ShutDown()
	running.Wait()
	return err
}

func (p *Publisher) next(ctx context.Context) bool {
	i, stop := p.queue.Get()
	if stop || ctx.Err() != nil {
		return false
	}
	defer p.queue.Done(i)
	bounded, cancel := context.WithTimeout(ctx, itemTimeout)
	defer cancel()
	if err := p.sync(bounded, i); err != nil && ctx.Err() == nil {
		p.Log.Warn("cannot update a pod's Port or status in the API, retrying",
			"port", i.port, "container", i.container, "node", i.node, "err", err)
		p.queue.AddRateLimited(i)
		return true
	}
	p.queue.Forget(i)
	return true
}

func (p *Publisher) sync(ctx context.Context, i item) error {
	switch {
	case i.node:
		return p.annotateNode(ctx)
	case i.container != "":
		return p.annotate(ctx, i.container)
	}
	p.mu.Lock()
	asking := p.asking[i.port]
	p.mu.Unlock()
	if asking {
		return nil // Write or Remove brings it back into the queue
	}
	at, ok := p.attached(i.port)
	if ok {
		err := p.Write(ctx, at)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil // the pod goes as well
		}
		if err != nil {
			return err
		}
	} else if err := p.delete(ctx, i.port); err != nil {
		return err
	}
	return p.unclaim(ctx, i.port, at)
}

// attached finds the attachment of a Port that is not being detached.
func (p *Publisher) attached(key string) (attachment.Attachment, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.Store.List() {
		if _, going := p.removed[at.Key]; !going && p.hasPort(at) && at.PortKey() == key {
			return at, true
		}
	}
	return attachment.Attachment{}, false
}

// pod finds a container's pod; nil until PodsChanged brings the container back into the queue.
func (p *Publisher) pod(container string, at attachment.Attachment) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod := p.View.State().Pod(at.PodNamespace, at.PodName, at.PodUID)
	if pod == nil {
		p.untold[container] = true
	}
	return pod
}

// annotate tells a pod of its interfaces.
func (p *Publisher) annotate(ctx context.Context, container string) error {
	list := p.Store.Of(container)
	if len(list) == 0 {
		return nil
	}
	pod := p.pod(container, list[0])
	if pod == nil {
		return nil
	}
	want := p.Annotations(pod, list)
	for key, value := range want {
		if pod.Annotations[key] == value {
			delete(want, key)
		}
	}
	if len(want) == 0 {
		return nil
	}
	if err := p.API.AnnotatePod(ctx, pod.Namespace, pod.Name, pod.UID, want); err != nil {
		return fmt.Errorf("annotations of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// annotateNode tells the cluster how much fits this node's interfaces, and where it is connected.
func (p *Publisher) annotateNode(ctx context.Context) error {
	p.mu.Lock()
	annotations := maps.Clone(p.ofNode)
	p.mu.Unlock()
	if err := p.API.AnnotateNode(ctx, p.Node, annotations); err != nil {
		return fmt.Errorf("annotations of node %s: %w", p.Node, err)
	}
	return nil
}
