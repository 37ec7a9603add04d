-- All statements about a secret; none of them shows its values.
CREATE SECRET Lake (s3.access_key = 'AKIA0123456789', "s3.secret_key" = 'wJalrXUtnFEMI');
CREATE SECRET IF NOT EXISTS lake (s3.access_key = 'another');
CREATE SECRET `from outside` (
  s3.access_key = 'env:LAKE_ACCESS_KEY', -- of the process that runs the jobs
  s3.secret_key = 'file:/run/secrets/lake'
);
ALTER SECRET lake (s3.secret_key = 'rotated', s3.session_token = 'temporary');
SHOW SECRETS;
DROP SECRET 'from outside';
DROP SECRET IF EXISTS `from outside`;
DROP SECRET lake;
SHOW SECRETS;
