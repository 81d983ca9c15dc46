//go:build tools

// Names what scripts/test-integration builds: a server of S3, so that archives meet a real one.
package versitygw

import _ "github.com/versity/versitygw/cmd/versitygw"
