// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/kuryr"
)

// fromKuryr has the first interface of a pod that Kuryr has made a port for ask for the addresses
// and the MAC of that port. A KuryrPort of an earlier pod of the same name has no effect.
func (p *Planner) fromKuryr(ctx context.Context, ask cni.Request, i attachment.Plan) (attachment.Plan, error) {
	n := p.View.State().Networks.Get(i.NetworkName)
	if !p.Neutron || ask.NeutronPort != "" || n == nil || n.Annotations[v1alpha1.AnnotationKuryrNetwork] == "" ||
		len(i.Addresses) > 0 || i.MAC != nil {
		return i, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	object, err := p.API.KuryrPort(ctx, ask.PodNamespace, ask.PodName)
	if apierrors.IsNotFound(err) {
		return i, nil
	}
	if err != nil {
		return i, early(v1alpha1.ReasonInvalid, "pod %s/%s: whether Kuryr has made a port for it is not known: %v",
			ask.PodNamespace, ask.PodName, err)
	}
	port, made, err := kuryr.ReadPort(object)
	if err != nil {
		return i, refused(v1alpha1.ReasonInvalid, "%v: delete the KuryrPort, and the pod gets another address", err)
	}
	if !made || port.PodUID != ask.PodUID || port.Unusable != "" {
		return i, nil
	}
	for _, a := range port.Addresses {
		if _, ok := i.Subnet(a); !ok { // the pod was on another network
			return i, nil
		}
	}
	i.Addresses, i.MAC = port.Addresses, &port.MAC
	return i, nil
}
