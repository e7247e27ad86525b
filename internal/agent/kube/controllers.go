// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"

	"coelan.io/coelan/internal/policystream/client"
)

// Controllers tells until ctx ends which controllers there are in a namespace to hear of policies from.
func (c *Client) Controllers(ctx context.Context, namespace string) client.Controllers {
	return client.Watch(ctx, c.api, namespace, c.log)
}
