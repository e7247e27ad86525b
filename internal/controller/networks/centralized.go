// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/controller/reconcile"
)

// centralize is apply for a centralized gateway.
func (r *gateways) centralize(ctx context.Context, router *v1alpha1.Router,
	has []*v1alpha1.AddressBlock,
) (again time.Duration, err error) {
	cluster, err := r.cluster(ctx, router, has)
	if err != nil {
		return 0, err
	}
	v := allocate.CheckCentralized(router, cluster)
	s, err := r.claims.egress(ctx, claimantCentralized(router), router.Spec.Gateway.Network, cluster.Network, v, has)
	if err != nil {
		return 0, err
	}
	if !v.Keep {
		if err := r.release(ctx, router, has, s.keeps); err != nil {
			return 0, err
		}
	}
	router.Status.GatewayNodes = int32(len(v.Nodes)) //nolint:gosec // a number of nodes
	router.Status.GatewayAddresses = s.texts()
	c := allocate.EgressReady(v1alpha1.ConditionGatewayReady, v, s.has, s.refused)
	c.ObservedGeneration = router.Generation
	reconcile.SetCondition(&router.Status.Conditions, c)
	return s.again, nil
}
