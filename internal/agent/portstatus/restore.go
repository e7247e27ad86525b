// SPDX-License-Identifier: Apache-2.0

package portstatus

import (
	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/translate"
)

// seen puts Ports into the queue that are gone, or have become another pod's or another node's,
// while a pod of this node is attached.
func (p *Publisher) seen(d kube.Delta[*v1alpha1.Port]) {
	key := func(o *v1alpha1.Port) string { return o.Namespace + "/" + o.Name }
	news := map[string]*v1alpha1.Port{} // nil: it is gone
	for _, o := range d.Gone {
		news[key(o)] = nil
	}
	for _, o := range d.Set {
		news[key(o)] = o
	}
	for _, at := range p.Store.List() {
		o, changed := news[at.PortKey()]
		if (changed || d.Whole) && p.hasPort(at) && p.lacks(at, o) {
			p.queue.AddRateLimited(item{port: at.PortKey()})
		}
	}
}

// lacks says whether an attachment needs another Port than there is. That of a pod that is not in
// the API any more is Kubernetes' to delete, also while the pod is attached.
func (p *Publisher) lacks(at attachment.Attachment, o *v1alpha1.Port) bool {
	pod := p.View.State().Pod(at.PodNamespace, at.PodName, at.PodUID)
	return pod != nil && (o == nil || !sameSpec(o, translate.PodPort(at, p.Node, string(pod.UID))))
}
