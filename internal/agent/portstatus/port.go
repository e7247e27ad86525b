// SPDX-License-Identifier: Apache-2.0

package portstatus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/translate"
)

// Write makes the Port of an attachment what it should be. A Port of the same name that a former
// pod has left is replaced; one that a user made is an error.
func (p *Publisher) Write(ctx context.Context, at attachment.Attachment) error {
	want, have, err := p.ensure(ctx, at)
	if err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.asking, at.PortKey())
	p.mu.Unlock()
	if sameStatus(have.Status, want.Status) {
		return nil
	}
	if err := p.API.PatchPortStatus(ctx, want.Namespace, want.Name, want.Status); err != nil {
		return fmt.Errorf("status of port %s: %w", at.PortKey(), err)
	}
	return nil
}

// Ask makes the Port of an attachment that is to be a port of Neutron, and of which nothing else is
// known yet, so that the controller says what that port has. The Port stays until Write makes one
// of the attachment in its place, or Remove withdraws it.
func (p *Publisher) Ask(ctx context.Context, at attachment.Attachment) (types.UID, error) {
	if other, attached := p.attached(at.PortKey()); attached {
		return "", fmt.Errorf("port %s is still that of container %s: it goes with that one's DEL", at.PortKey(), other.ContainerID)
	}
	p.mu.Lock()
	p.asking[at.PortKey()] = true
	p.mu.Unlock()
	_, have, err := p.ensure(ctx, at)
	if err != nil {
		return "", err
	}
	return have.UID, nil
}

// ensureTries bounds how often a Port is made: ADD and the queue may do so at the same time, in
// place of the same former one.
const ensureTries = 3

// ensure makes the Port with the spec that it should have. The status of have is what it was.
func (p *Publisher) ensure(ctx context.Context, at attachment.Attachment) (want, have *v1alpha1.Port, err error) {
	p.mu.Lock()
	delete(p.removed, at.Key)
	p.mu.Unlock()
	want = translate.PodPort(at, p.Node, p.uid(at))
	for range ensureTries {
		have, err = p.API.CreatePort(ctx, want)
		if !apierrors.IsAlreadyExists(err) {
			break
		}
		var same bool
		if have, same, err = p.existing(ctx, want); same || err != nil {
			break
		}
		err = errReplaced
	}
	if err != nil {
		return nil, nil, fmt.Errorf("port %s: %w", at.PortKey(), err)
	}
	return want, have, nil
}

// errReplaced says that something else makes Ports of that name.
var errReplaced = errors.New("another one of this name is made each time that it is deleted")

// existing is the Port that is in the place of another. If it has another spec, it is deleted.
func (p *Publisher) existing(ctx context.Context, want *v1alpha1.Port) (have *v1alpha1.Port, same bool, err error) {
	have, err = p.API.Port(ctx, want.Namespace, want.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case sameSpec(have, want):
		return have, true, nil
	case have.Spec.Pod == nil:
		return nil, false, errors.New("it exists and is not a pod's: rename it")
	}
	if err := p.replace(ctx, have); err != nil {
		return nil, false, fmt.Errorf("that of a former pod: %w", err)
	}
	return nil, false, nil
}

// goneTimeout is how long another node, or the controller, may take to delete the Port of a pod
// that is gone.
const goneTimeout = 10 * time.Second

// replace deletes the Port of a former pod, or one that was bound here and then given to another
// node. That of a pod of another node it must not delete: the controller does as soon as that pod
// is gone, if its node does not. Of such a Port that no other node watches it does not wait for the
// end.
func (p *Publisher) replace(ctx context.Context, former *v1alpha1.Port) error {
	if former.Spec.Node == p.Node || former.Status.Node == p.Node {
		return p.API.DeletePort(ctx, former.Namespace, former.Name, former.UID)
	}
	ctx, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	key := former.Namespace + "/" + former.Name
	_, gone := p.View.Await(ctx, func(s apicache.State) bool {
		return s.Ports.Get(key) == nil || s.Ports.Get(key).UID != former.UID
	})
	if !gone {
		return fmt.Errorf("node %s and the controller have not deleted it yet; while its pod is there, no other can have it", former.Spec.Node)
	}
	return nil
}

// uid is the pod's in the API.
func (p *Publisher) uid(at attachment.Attachment) string {
	if pod := p.View.State().Pod(at.PodNamespace, at.PodName, at.PodUID); pod != nil {
		return string(pod.UID)
	}
	return at.PodUID
}

// delete removes the Port of an attachment that is gone.
func (p *Publisher) delete(ctx context.Context, key string) error {
	namespace, name, _ := strings.Cut(key, "/")
	o, err := p.API.Port(ctx, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		err = nil
	case err == nil && o.Spec.Pod != nil && o.Status.Node == p.Node || err == nil && o.Spec.Pod != nil &&
		o.Spec.Node == p.Node:
		err = p.API.DeletePort(ctx, namespace, name, o.UID)
	}
	if err != nil {
		return fmt.Errorf("port %s: %w", key, err)
	}
	return nil
}

// unclaim gives back the fixed addresses of a Port, those that the view shows and those of
// attachments just removed, but for those of the attachment that it has now.
func (p *Publisher) unclaim(ctx context.Context, key string, now attachment.Attachment) error {
	claims := map[claim]bool{}
	for _, b := range p.Singles.Singles() {
		if a, err := netip.ParsePrefix(b.Spec.CIDR); err == nil && b.Spec.Port == key {
			claims[claim{b.Spec.Network, a.Addr()}] = true
		}
	}
	p.mu.Lock()
	for _, at := range p.removed {
		for _, a := range at.Addresses {
			if at.PortKey() == key && at.FixedAddresses && at.BlockSpace {
				claims[claim{at.NetworkName, a.Addr()}] = true
			}
		}
	}
	done := maps.Clone(p.removed)
	p.mu.Unlock()
	for _, a := range now.Addresses {
		delete(claims, claim{now.NetworkName, a.Addr()})
	}
	var errs []error
	for c := range claims {
		errs = append(errs, p.Singles.UnclaimSingle(ctx, c.network, c.addr, key))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, at := range done {
		// One that is still in the store would look like one that has to have its Port.
		if _, there := p.Store.Get(k); at.PortKey() == key && !there {
			delete(p.removed, k)
		}
	}
	return nil
}
